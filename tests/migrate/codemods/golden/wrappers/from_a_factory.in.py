# golden: unsafe
import functools

from megatron.core.models.gpt.gpt_model import GPTModel


def scaling(forward, factor, *, shift=0.0):
    """A forward that scales what another returns."""

    @functools.wraps(forward)
    def scaled(*args, **kwargs):
        out = forward(*args, **kwargs)
        return out * factor + shift

    return scaled


def scale_embeddings(model: GPTModel, factor):
    model.embedding.forward = scaling(model.embedding.forward, factor, shift=0.5)
