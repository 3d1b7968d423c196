# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def scale_embeddings(model: GPTModel, factor):
    def scaled(_module, _args, out):
        """As the checkpoint was trained."""
        # not in place: the weight is shared
        return out * factor

    model.embedding.register_forward_hook(scaled)
