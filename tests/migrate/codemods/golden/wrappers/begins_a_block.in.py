# golden: unsafe
from functools import wraps

from megatron.core.models.gpt.gpt_model import GPTModel


def halve(model: GPTModel, on):
    if on:
        original = model.decoder.forward

        @wraps(original)
        def halved(*args, **kwargs):
            out = original(*args, **kwargs)
            return out / 2

        model.decoder.forward = halved
