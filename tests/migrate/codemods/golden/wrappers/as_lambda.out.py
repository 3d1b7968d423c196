# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def scale_embeddings(model: GPTModel, scale):
    model.embedding.register_forward_hook(lambda _module, _args, output: output * scale)
