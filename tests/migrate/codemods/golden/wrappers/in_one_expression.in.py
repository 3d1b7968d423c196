# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def in_double(model: GPTModel):
    original = model.decoder.forward

    def wrapped(*args, **kwargs):
        return original(*args, **kwargs).double().float()

    model.decoder.forward = wrapped
