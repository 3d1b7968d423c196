# golden: unsafe
"""The end has no head at all: the values come from a layer that the model was given."""

import types

from mcore_unpatch.compat import attach
from megatron.core.models.gpt.gpt_model import GPTModel


def _forward(self, *, hidden_states, **_):
    return self.values(hidden_states).squeeze(-1).transpose(0, 1)


def patch(model: GPTModel):
    attach(model, types.MethodType(_forward, model))
