# golden: unsafe
from types import MethodType

from megatron.core.models.gpt.gpt_model import GPTModel


def forward_with_shift(self, *args, **kwargs):
    embedded = self._forward_before_shift(*args, **kwargs)
    return embedded + self.shift


def shift_embeddings(model: GPTModel, by):
    embedding = model.embedding
    embedding.shift = by
    embedding._forward_before_shift = embedding.forward
    embedding.forward = MethodType(forward_with_shift, embedding)


def unshift(model: GPTModel):
    model.embedding.forward = model.embedding._forward_before_shift
    del model.embedding._forward_before_shift
