# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def double(model: GPTModel, *inputs):
    original = model.decoder.forward

    def wrapped(*args, **kwargs):
        return original(*args, **kwargs) * 2

    model.decoder.forward = wrapped
    return model.decoder.forward(*inputs)
