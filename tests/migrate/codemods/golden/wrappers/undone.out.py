# golden: unsafe
from contextlib import contextmanager

from megatron.core.models.gpt.gpt_model import GPTModel


@contextmanager
def recorded(model: GPTModel, seen):
    def record(_module, _args, kwargs, hidden):
        seen.append((sorted(kwargs), hidden))
        return hidden

    # what goes into the head
    handle = model.decoder.register_forward_hook(record, with_kwargs=True)
    try:
        yield seen
    finally:
        handle.remove()
