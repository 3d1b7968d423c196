# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def squared(model: GPTModel):
    inner = model.decoder.forward

    def squaring(hidden_states, *args, **kwargs):
        out = inner(hidden_states, *args, **kwargs)
        return out**2 + hidden_states

    model.decoder.forward = squaring


def halved(model: GPTModel):
    outer = model.decoder.forward

    def halving(*args, **kwargs):
        return outer(*args, **kwargs) / 2

    model.decoder.forward = halving
