# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def in_double(model: GPTModel):
    def wrapped(_module, _args, output):
        return output.double().float()

    model.decoder.register_forward_hook(wrapped)
