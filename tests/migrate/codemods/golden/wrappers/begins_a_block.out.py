# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def halve(model: GPTModel, on):
    if on:

        def halved(_module, _args, out):
            return out / 2

        model.decoder.register_forward_hook(halved)
