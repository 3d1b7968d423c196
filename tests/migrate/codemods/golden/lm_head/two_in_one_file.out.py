# golden: unsafe
from mcore_unpatch.compat import attach
from megatron.core.models.gpt.gpt_model import GPTModel


def actor(model: GPTModel):
    def hidden(*, hidden_states, **_):
        return hidden_states.transpose(0, 1).contiguous()

    attach(model, hidden)


def critic(model: GPTModel):
    def hidden_float(*, hidden_states, **_):
        return hidden_states.transpose(0, 1).contiguous()

    attach(model, hidden_float)
