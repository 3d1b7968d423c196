# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def scaling(factor, *, shift=0.0):
    """A forward that scales what another returns."""

    def scaled(_module, _args, out):
        return out * factor + shift

    return scaled


def scale_embeddings(model: GPTModel, factor):
    model.embedding.register_forward_hook(scaling(factor, shift=0.5))
