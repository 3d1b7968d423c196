# golden: unsafe
import torch
from megatron.core.models.gpt.gpt_model import GPTModel


def without_gradients(model: GPTModel):
    original = model.decoder.forward

    def wrapped(*args, **kwargs):
        with torch.no_grad():
            return original(*args, **kwargs)

    model.decoder.forward = wrapped
