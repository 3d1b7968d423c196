# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def careful(model: GPTModel):
    original = model.decoder.forward

    def wrapped(*args, **kwargs):
        try:
            return original(*args, **kwargs)
        except RuntimeError:
            print("decoder failed")
            raise

    model.decoder.forward = wrapped
