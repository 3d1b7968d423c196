# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def scaled(model: GPTModel, width):
    decoder = model.decoder
    orig = decoder.forward

    def decoder_forward(hidden_states, *a, _orig=orig, _width=width, **k):
        return _orig(hidden_states / _width, *a, **k)

    decoder.forward = decoder_forward
