"""Freeze everything under the head: the decoder's output is detached."""

from megatron.core.models.gpt.gpt_model import GPTModel


def _detached(self, *args, _upstream=GPTModel._postprocess, **kwargs):
    kwargs["hidden_states"] = kwargs["hidden_states"].detach().requires_grad_()
    return _upstream(self, *args, **kwargs)


GPTModel._postprocess = _detached
