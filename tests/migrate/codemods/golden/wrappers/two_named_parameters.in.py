# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def detach(model: GPTModel):
    original = model.decoder.forward

    def wrapped(hidden_states, attention_mask, *args, **kwargs):
        return original(hidden_states.detach(), attention_mask, *args, **kwargs)

    model.decoder.forward = wrapped
