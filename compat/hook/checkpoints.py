"""Reentrant checkpoints, which see tensors alone: gradients of anything else are lost without a word."""

import sys
from types import FrameType

import torch

from mcore_unpatch.compat.hook.errors import HookError


def refuse_reentrant_checkpoint(what: str, *, returned: bool) -> None:
    """Raise inside `torch.utils.checkpoint.checkpoint(..., use_reentrant=True)`, or Megatron's own.

    `returned`: `what` leaves the checkpoint, which then loses a gradient only if one was to come back into it.
    Otherwise it was passed in. Nothing happens where gradients are on: a reentrant checkpoint runs without.
    """
    if torch.is_grad_enabled():
        return
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_qualname == "CheckpointFunction.forward":
            if not returned or frame.f_locals["ctx"].next_functions:
                raise HookError(
                    f"{what} {'returned from' if returned else 'passed to'} a reentrant checkpoint, which finds no "
                    "tensor to differentiate in it, so there would be no gradient; pass use_reentrant=False to "
                    "torch.utils.checkpoint.checkpoint."
                )
            return
        frame = frame.f_back
