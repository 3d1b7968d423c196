# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def scale_embeddings(model: GPTModel, scale):
    original = model.embedding.forward
    model.embedding.forward = lambda *args, **kwargs: original(*args, **kwargs) * scale
