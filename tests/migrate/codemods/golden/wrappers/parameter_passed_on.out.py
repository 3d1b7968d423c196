# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def halve(model: GPTModel):
    def halved(_module, _args, output):
        hidden = output  # in the dtype of the model
        return hidden / 2

    # the decoder alone
    model.decoder.register_forward_hook(halved)
