"""The errors of the hook: why a processor cannot run, or did not run."""

import sys
from types import FrameType

import torch


class HookError(RuntimeError):
    """The processor cannot run, or did not run, where the caller asked for it."""


class HookMissingError(HookError):
    """The model's `forward` has no `output_processor`: megatron-core is too old, or something replaced `forward`."""


class WrapperRefusesError(HookError):
    """A wrapper's `forward` takes neither the hook's keywords nor `**kwargs`."""


class HookSwallowedError(HookError):
    """The hook's keywords were accepted, the output stage returned, and the processor was never called."""


class HookBypassedError(HookError):
    """The model's `forward` was called as a method, which skips the hooks that a call of the module runs."""


class LegacyPatchError(HookError):
    """A patch replaced methods of the model and would run instead of the hook, or conflict with it."""


class AttachmentError(HookError):
    """Two processors were given for the same call of the same model."""


class UnsupportedHeadError(HookError):
    """The output layer does more than multiply by its weight, so its weight alone does not give the logits."""


class MissingContextError(HookError):
    """The processor needs a value that is neither in the call nor in its context."""


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
