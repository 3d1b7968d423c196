# golden: unsafe
import torch
from megatron.core.models.gpt.gpt_model import GPTModel


class EmbeddingScaling(torch.nn.Module):
    """What Gemma does to embeddings."""

    # in the dtype of the embeddings
    def forward(self, **kwargs):
        embeddings = super().forward(**kwargs)
        factor = self.config.hidden_size**0.5
        return embeddings * torch.tensor(factor, dtype=embeddings.dtype)


def scale_embeddings(model: GPTModel):
    embedding = model.embedding
    # the mixin comes first
    embedding.__class__ = type(type(embedding).__name__, (EmbeddingScaling, type(embedding)), {})
