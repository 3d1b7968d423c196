# golden: unsafe
"""A wrapper that installs a closure while it is open."""

from contextlib import contextmanager

from mcore_unpatch.compat import attach
from megatron.core.models.gpt.gpt_model import GPTModel


@contextmanager
def top_logits(model: GPTModel, k: int):
    def forward(*, hidden_states, output_layer, **_):
        logits, _ = output_layer(hidden_states)
        return logits.transpose(0, 1).topk(k).values

    handle = attach(model, forward)
    try:
        yield
    finally:
        handle.remove()
