# golden: unsafe
"""Another function takes the patch back by an attribute that is used for more: steps are reported."""

import types

from megatron.core.models.gpt.gpt_model import GPTModel


def patch_head(model: GPTModel):
    layer = model.output_layer
    layer.own_forward = layer.forward

    def passthrough(self, hidden_states, *args, **kwargs):
        return hidden_states, None

    layer.forward = types.MethodType(passthrough, layer)


def unpatch_head(model: GPTModel):
    model.output_layer.forward = model.output_layer.own_forward


def logits(model: GPTModel, hidden_states):
    return model.output_layer.own_forward(hidden_states)[0]
