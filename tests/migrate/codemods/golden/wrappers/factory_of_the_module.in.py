# golden: unsafe
import types

from megatron.core.models.gpt.gpt_model import GPTModel


def doubling(layer):
    name = type(layer).__name__
    # as it is now
    inner = layer.forward

    def doubled(self, *args, **kwargs):
        hidden, context = inner(*args, **kwargs)
        return hidden * (2 if self.training and name else 1), context

    return types.MethodType(doubled, layer)


def double(model: GPTModel):
    for layer in model.decoder.layers:
        layer.forward = doubling(layer)
