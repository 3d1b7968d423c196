# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def drop(model: GPTModel):
    original = model.decoder.forward

    def wrapped(*args, **kwargs):
        out = original(*args, **kwargs)
        if out is None:
            return
        return out

    model.decoder.forward = wrapped
