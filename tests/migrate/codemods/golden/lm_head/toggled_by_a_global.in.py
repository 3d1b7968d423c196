# golden: unsafe
"""Toggled by a global."""

import types

from megatron.core.models.gpt.gpt_model import GPTModel

DEFERRED = {"on": False}


def defer(model: GPTModel):
    layer = model.output_layer
    layer.kept_forward = layer.forward

    def forward(self, hidden_states, *args, **kwargs):
        if DEFERRED["on"]:
            return hidden_states, None
        return self.kept_forward(hidden_states, *args, **kwargs)

    layer.forward = types.MethodType(forward, layer)
