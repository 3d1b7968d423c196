# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def halved(model: GPTModel):
    original = model.decoder.forward

    def wrapped(hidden_states, *args, **kwargs):
        return original(hidden_states / 2, *args, **kwargs)

    model.decoder.forward = wrapped


def residual(model: GPTModel):
    original = model.decoder.forward

    def wrapped(hidden_states, *args, **kwargs):
        out = original(hidden_states, *args, **kwargs)
        return out + hidden_states

    model.decoder.forward = wrapped
