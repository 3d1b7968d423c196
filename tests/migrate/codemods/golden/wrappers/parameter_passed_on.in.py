# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def halve(model: GPTModel):
    original = model.decoder.forward  # the decoder alone

    def halved(hidden_states, *args, **kwargs):
        hidden = original(hidden_states, *args, **kwargs)  # in the dtype of the model
        return hidden / 2

    model.decoder.forward = halved
