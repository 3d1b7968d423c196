# golden: unsafe
"""All of it is its own end; the rest of Megatron's arguments is swallowed."""

from mcore_unpatch.compat import attach
from megatron.core.models.gpt.gpt_model import GPTModel


def greedy(*, hidden_states, output_layer, **_):
    # [s, b, h]
    logits, _ = output_layer(hidden_states)
    return logits.amax(-1).transpose(0, 1)


def patch(model: GPTModel):
    attach(model, greedy)
