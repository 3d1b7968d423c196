# golden: unsafe
import types

from megatron.core.models.gpt.gpt_model import GPTModel


def shift(model: GPTModel, by):
    embedding = model.embedding
    # the class's own
    original = type(embedding).forward

    def shifted(self, *args, **kwargs):
        embedded = original(self, *args, **kwargs)
        return embedded + by * self.training

    embedding.forward = types.MethodType(shifted, embedding)


def detach(model: GPTModel):
    original = model.decoder.__class__.forward

    def detached(self, hidden_states, attention_mask=None, **kwargs):
        return original(self, hidden_states=hidden_states.detach(), attention_mask=attention_mask, **kwargs)

    model.decoder.forward = detached.__get__(model.decoder)
