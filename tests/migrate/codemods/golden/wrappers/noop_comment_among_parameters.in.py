# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def halve(model: GPTModel):
    original = model.decoder.forward

    def halved(
        *args,  # hidden states and mask
        **kwargs,
    ):
        out = original(*args, **kwargs)
        return out / 2

    model.decoder.forward = halved
