# golden: unsafe
import types

from megatron.core.models.gpt.gpt_model import GPTModel


def double(model: GPTModel):
    original = model.embedding.forward

    def forward(self, *args, **kwargs):
        embedded = original(*args, **kwargs)
        return embedded * (2 if self.training else 1)

    model.embedding.forward = types.MethodType(forward, model.embedding)
