# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def double(model: GPTModel):
    original = model.decoder.forward

    def wrapped(*args, factor=2, **kwargs):
        return original(*args, **kwargs) * factor

    model.decoder.forward = wrapped
