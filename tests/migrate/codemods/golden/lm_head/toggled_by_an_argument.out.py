# golden: unsafe
from contextlib import contextmanager

from mcore_unpatch.compat import HeadInputs, attach
from megatron.core.models.gpt.gpt_model import GPTModel


@contextmanager
def hidden_states_of(model: GPTModel, enabled: bool):
    slot = {}

    def keep_weight(weight):
        slot["weight"] = weight

    handle = attach(model, HeadInputs(keep=keep_weight), when=lambda: enabled)
    try:
        yield slot
    finally:
        handle.remove()
