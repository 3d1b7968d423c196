# golden: unsafe
from contextlib import contextmanager

from megatron.core.models.gpt.gpt_model import GPTModel


@contextmanager
def hidden_states_of(model: GPTModel, enabled: bool):
    slot = {}
    output_layer = model.output_layer
    original_forward = output_layer.forward

    def patched(input_, weight=None, runtime_gather_output=None):
        if not enabled:
            return original_forward(input_, weight=weight, runtime_gather_output=runtime_gather_output)
        slot["weight"] = weight if weight is not None else output_layer.weight
        return input_, None

    output_layer.forward = patched  # type: ignore[method-assign]
    try:
        yield slot
    finally:
        del output_layer.forward
