# golden: unsafe
"""What the original may change is read before it."""

from megatron.core.models.gpt.gpt_model import GPTModel


def with_loss(model: GPTModel):
    original = model.decoder.forward

    def forward(*args, **kwargs):
        return model.decoder.aux_loss + original(*args, **kwargs)

    model.decoder.forward = forward
