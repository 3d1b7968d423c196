# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def halved(_module, args, kwargs):
    hidden_states = args[0] if args else kwargs.pop("hidden_states")
    return (hidden_states / 2, *args[1:]), kwargs


def halve(model: GPTModel):
    decoder = model.decoder
    decoder.register_forward_pre_hook(halved, with_kwargs=True)
