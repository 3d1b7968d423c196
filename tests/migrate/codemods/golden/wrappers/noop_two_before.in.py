# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def plus_one(model: GPTModel):
    original = model.decoder.forward

    def wrapped(hidden_states, *args, **kwargs):
        return original(hidden_states + 1, *args, **kwargs)

    model.decoder.forward = wrapped


def doubled(model: GPTModel):
    original = model.decoder.forward

    def wrapped(hidden_states, *args, **kwargs):
        return original(hidden_states * 2, *args, **kwargs)

    model.decoder.forward = wrapped
