# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def scaled(model: GPTModel, width):
    decoder = model.decoder

    def decoder_forward(_module, a, k, *, _width=width):
        hidden_states = a[0] if a else k.pop("hidden_states")
        return (hidden_states / _width, *a[1:]), k

    decoder.register_forward_pre_hook(decoder_forward, with_kwargs=True)
