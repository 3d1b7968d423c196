# golden: unsafe
"""Gathers and casts before it hands over: its own body becomes the processor."""

from contextlib import contextmanager

from mcore_unpatch.compat import attach
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region


@contextmanager
def capture(model: GPTModel, slot):
    layer = model.output_layer

    def captured(*, hidden_states, output_weight, **_):
        input_ = hidden_states
        weight = output_weight
        head = weight if weight is not None else layer.weight
        hidden = gather_from_sequence_parallel_region(input_).to(head.dtype)
        slot.hidden, slot.weight = hidden, head
        return hidden.transpose(0, 1).contiguous()

    handle = attach(model, captured)
    try:
        yield slot
    finally:
        handle.remove()
