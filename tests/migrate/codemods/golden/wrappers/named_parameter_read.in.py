# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def residual(model: GPTModel):
    original = model.decoder.forward

    def forward(hidden_states, *args, **kwargs):
        output = original(hidden_states, *args, **kwargs)
        return output + hidden_states.detach()

    model.decoder.forward = forward
