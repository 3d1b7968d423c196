# golden: unsafe
"""Gathers and casts before it hands over: its own body becomes the processor."""

from contextlib import contextmanager

from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region


@contextmanager
def capture(model: GPTModel, slot):
    layer = model.output_layer
    own_forward = layer.forward

    def captured(input_, weight=None, runtime_gather_output=None):
        head = weight if weight is not None else layer.weight
        hidden = gather_from_sequence_parallel_region(input_).to(head.dtype)
        slot.hidden, slot.weight = hidden, head
        return hidden, None

    layer.forward = captured  # type: ignore[method-assign]
    try:
        yield slot
    finally:
        try:
            del layer.forward
        except AttributeError:
            layer.forward = own_forward  # type: ignore[method-assign]
