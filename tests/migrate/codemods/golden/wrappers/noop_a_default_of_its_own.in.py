# golden: unsafe
"""The original is given `weight=1`, whatever its own default is; a forward hook comes too late for that."""

from megatron.core.models.gpt.gpt_model import GPTModel


def double(model: GPTModel):
    original = model.decoder.forward

    def doubled(hidden_states, weight=1, *args, **kwargs):
        return original(hidden_states, weight, *args, **kwargs) * 2

    model.decoder.forward = doubled
