# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def scaled(model: GPTModel, factor):
    original = model.decoder.forward

    def decoder_forward(hidden_states, *args, inference_context=None, **kwargs):
        return original(hidden_states * factor, *args, inference_context=inference_context, **kwargs)

    model.decoder.forward = decoder_forward
