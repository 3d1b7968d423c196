# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def scale(model: GPTModel, factor):
    embedding = model.embedding

    def scaled(self, _args, embedded):
        return embedded * factor if self.training else embedded

    # as it was
    embedding.register_forward_hook(scaled)
