# golden: unsafe
"""Who calls this cannot be seen to have the model: steps are reported."""

import types

from megatron.core.models.gpt.gpt_model import GPTModel


def bypass(output_layer):
    def passthrough(self, hidden_states, *args, **kwargs):
        return hidden_states, None

    output_layer.forward = types.MethodType(passthrough, output_layer)


def bypass_all(models: list[GPTModel]):
    for layer in [model.output_layer for model in models]:
        bypass(layer)
