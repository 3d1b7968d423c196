# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def detach(model: GPTModel):
    original = model.decoder.forward
    model.decoder.forward = lambda x, *args, **kwargs: original(x.detach(), *args, **kwargs)


def on_a_condition(model: GPTModel):
    original = model.embedding.forward
    model.embedding.forward = lambda *args, **kwargs: original(*args, **kwargs) if model.training else None
