# golden: unsafe
"""A wrapper, no copy."""

from megatron.core.models.gpt.gpt_model import GPTModel

_original = GPTModel.forward


def _forward(self, *args, **kwargs):
    logits = _original(self, *args, **kwargs)
    return logits.log_softmax(-1)


GPTModel.forward = _forward
