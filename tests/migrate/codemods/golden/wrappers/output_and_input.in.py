# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def residual(model: GPTModel):
    original = model.embedding.forward

    def positioned(*args, **kwargs):
        return original(*args, **kwargs) + kwargs["position_ids"].T[..., None] / 100

    model.embedding.forward = positioned
