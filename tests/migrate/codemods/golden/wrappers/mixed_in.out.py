# golden: unsafe
import torch
from megatron.core.models.gpt.gpt_model import GPTModel


# in the dtype of the embeddings
def embedding_scaling(module, _args, embeddings):
    """What Gemma does to embeddings."""
    factor = module.config.hidden_size**0.5
    return embeddings * torch.tensor(factor, dtype=embeddings.dtype)


def scale_embeddings(model: GPTModel):
    embedding = model.embedding
    # the mixin comes first
    embedding.register_forward_hook(embedding_scaling)
