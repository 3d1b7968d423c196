# golden: unsafe
import functools

from megatron.core.models.gpt.gpt_model import GPTModel


def scale_embeddings(model: GPTModel, factor):
    original = model.embedding.forward

    @functools.wraps(original)
    def scaled(*args, **kwargs):
        """As the checkpoint was trained."""
        out = original(*args, **kwargs)
        # not in place: the weight is shared
        return out * factor

    model.embedding.forward = scaled
