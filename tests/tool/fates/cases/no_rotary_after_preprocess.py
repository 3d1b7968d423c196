"""Drop the rotary embedding for a model without positions."""

from megatron.core.models.gpt.gpt_model import GPTModel

_preprocess = GPTModel._preprocess


def _without_rotary(self, *args, **kwargs):
    decoder_input, _, cos, sin, offset = _preprocess(self, *args, **kwargs)
    return decoder_input, None, cos, sin, offset


GPTModel._preprocess = _without_rotary
