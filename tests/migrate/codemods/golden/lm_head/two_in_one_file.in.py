# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def actor(model: GPTModel):
    def hidden(hidden_states, weight=None, runtime_gather_output=None):
        return hidden_states, None

    model.output_layer.forward = hidden


def critic(model: GPTModel):
    def hidden_float(hidden_states, weight=None, runtime_gather_output=None):
        return hidden_states, None

    model.output_layer.forward = hidden_float
