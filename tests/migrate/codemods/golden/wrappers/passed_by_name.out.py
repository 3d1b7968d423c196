# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def scaled(model: GPTModel, factor):
    def decoder_forward(_module, args, kwargs):
        hidden_states = args[0] if args else kwargs.pop("hidden_states")
        inference_context = kwargs.pop("inference_context", None)
        return (hidden_states * factor, *args[1:]), {**kwargs, "inference_context": inference_context}

    model.decoder.register_forward_pre_hook(decoder_forward, with_kwargs=True)
