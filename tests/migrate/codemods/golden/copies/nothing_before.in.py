# golden: unsafe
"""All of it is its own end; the rest of Megatron's arguments is swallowed."""

import types

from megatron.core.models.gpt.gpt_model import GPTModel


def greedy(self, hidden_states, labels=None, **kwargs):
    # [s, b, h]
    logits, _ = self.output_layer(hidden_states)
    return logits.amax(-1).transpose(0, 1)


def patch(model: GPTModel):
    model._postprocess = types.MethodType(greedy, model)
