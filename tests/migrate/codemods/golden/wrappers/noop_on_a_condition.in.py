# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def skip(model: GPTModel, enabled):
    original = model.decoder.forward

    def wrapped(*args, **kwargs):
        if enabled:
            return original(*args, **kwargs)
        return args[0]

    model.decoder.forward = wrapped
