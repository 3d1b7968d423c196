# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def clamped(module, args, kwargs):
    kwargs["input_ids"] = kwargs["input_ids"].clamp(min=module.lowest)
    return args, kwargs


def clamp(model: GPTModel, lowest):
    model.embedding.lowest = lowest
    model.embedding.register_forward_pre_hook(clamped, with_kwargs=True)
