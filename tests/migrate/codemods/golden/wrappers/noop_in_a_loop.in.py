# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def double(model: GPTModel):
    for layer in model.decoder.layers:
        original = layer.forward

        def wrapped(*args, **kwargs):
            out = original(*args, **kwargs)
            return out

        layer.forward = wrapped
