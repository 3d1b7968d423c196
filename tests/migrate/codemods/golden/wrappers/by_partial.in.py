# golden: unsafe
from functools import partial

from megatron.core.models.gpt.gpt_model import GPTModel


def halved(forward, hidden_states, *args, **kwargs):
    return forward(hidden_states / 2, *args, **kwargs)


def halve(model: GPTModel):
    decoder = model.decoder
    decoder.forward = partial(halved, decoder.forward)
