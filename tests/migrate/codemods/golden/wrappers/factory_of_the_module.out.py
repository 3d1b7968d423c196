# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def doubling(layer):
    name = type(layer).__name__

    # as it is now
    def doubled(self, _args, output):
        hidden, context = output
        return hidden * (2 if self.training and name else 1), context

    return doubled


def double(model: GPTModel):
    for layer in model.decoder.layers:
        layer.register_forward_hook(doubling(layer))
