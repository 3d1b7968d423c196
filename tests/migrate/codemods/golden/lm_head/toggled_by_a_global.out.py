# golden: unsafe
"""Toggled by a global."""

from mcore_unpatch.compat import HeadInputs, attach
from megatron.core.models.gpt.gpt_model import GPTModel

DEFERRED = {"on": False}


def defer(model: GPTModel):
    attach(model, HeadInputs(), when=lambda: DEFERRED["on"])
