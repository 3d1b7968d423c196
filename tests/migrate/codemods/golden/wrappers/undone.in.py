# golden: unsafe
from contextlib import contextmanager

from megatron.core.models.gpt.gpt_model import GPTModel


@contextmanager
def recorded(model: GPTModel, seen):
    # what goes into the head
    original = model.decoder.forward

    def record(*args, **kwargs):
        hidden = original(*args, **kwargs)
        seen.append((sorted(kwargs), hidden))
        return hidden

    model.decoder.forward = record
    try:
        yield seen
    finally:
        model.decoder.forward = original
