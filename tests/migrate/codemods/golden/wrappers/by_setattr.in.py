# golden: unsafe
import types

from megatron.core.models.gpt.gpt_model import GPTModel


def scale(model: GPTModel, factor):
    embedding = model.embedding
    # as it was
    original = embedding.forward

    def scaled(self, *args, **kwargs):
        embedded = original(*args, **kwargs)
        return embedded * factor if self.training else embedded

    setattr(embedding, "forward", types.MethodType(scaled, embedding))
