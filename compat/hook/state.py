"""What the hook's parts share: errors, what was installed for calls, fields with another value until a call ends."""

import sys
import threading
from collections.abc import Callable, Sequence
from copy import copy
from types import FrameType
from typing import Any, TypeVar
from weakref import WeakSet

import torch
from torch import Tensor
from torch.nn import Module


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


_Value = TypeVar("_Value")
# By the thread, from the beginning of its call to the end. Its next call replaces what an interrupted one left: PyTorch
# runs no hook after a KeyboardInterrupt.
PerThread = dict[int, _Value]

# Held while something shared by calls is looked for and installed, or given up and removed.
INSTALLING = threading.RLock()

PROBING: set[int] = set()  # threads that call a layer on one row, to let its hooks run
VALUE_HEADS: WeakSet[Module] = WeakSet()  # layers that `add_value_head` put there


def version_of(tensor: Tensor) -> int:
    """How often PyTorch saw a write to it (not counted in inference mode)."""
    return 0 if tensor.is_inference() else tensor._version


class Handle:
    """A handle to what was installed; `remove()` undoes it, once.

    As a context manager it does so when the block ends, unless another caller holds it too.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []
        self._holders = 0
        self._removed = False

    def on_removal(self, *undo: Callable[[], Any]) -> None:
        """Add functions to call on removal."""
        self._undo += undo

    def claim(self) -> "Handle":
        """Count one more holder of this handle."""
        self._holders += 1
        return self

    def release(self) -> None:
        """Count one holder less; the last one undoes everything."""
        with INSTALLING:
            self._holders -= 1
            if self._holders <= 0:
                self.remove()

    def remove(self) -> None:
        """Undo everything, even if others hold the handle."""
        self._removed = True
        while self._undo:
            self._undo.pop(0)()

    def __enter__(self) -> "Handle":
        if self._removed:
            raise HookError("this handle was removed, so nothing is installed any more; attach again.")
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


class OneCallFields:
    """Fields set for the current call. Data only: methods are never replaced.

    All threads see them, so a call that needs to set one raises while another thread is in the model.
    """

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []
        self._inside: set[int] = set()

    def begin(self) -> None:
        """Begin a call; restores what an interrupted call of this thread left set."""
        self._inside &= {thread.ident for thread in threading.enumerate() if thread.ident is not None}
        if self._before:
            self._require_alone()
            self._put_back()
        self._inside.add(threading.get_ident())

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Give `owner.name` another value until `restore`."""
        self._require_alone()
        before = getattr(owner, name)
        if callable(before):
            raise TypeError(f"{type(owner).__name__}.{name} is a function; only data fields may be set.")
        self._before.append((owner, name, before))
        setattr(owner, name, value)

    def configure(self, model: Any, **values: Any) -> None:
        """Give the model a changed configuration; its layers keep theirs, which they may read in the backward."""
        config = copy(model.config)
        for name, value in values.items():
            setattr(config, name, value)
        self.set(model, "config", config)

    def leave_out_mtp(self, model: Any, keywords: dict[str, Any], known: Sequence[str]) -> None:
        """No multi-token prediction in this call, neither its layers nor a loss; `known` are the model's arguments."""
        if "compute_mtp_loss" in known:  # HybridModel on Megatron's main branch
            keywords.setdefault("compute_mtp_loss", False)
            return
        self.configure(model, mtp_num_layers=None)
        self.set(model, "mtp_process", False)

    def restore(self) -> None:
        """End the call and restore everything."""
        if threading.get_ident() in self._inside:
            self._inside.discard(threading.get_ident())
            self._put_back()

    def _put_back(self) -> None:
        while self._before:  # the last set first
            setattr(*self._before.pop())

    def _require_alone(self) -> None:
        if self._inside - {threading.get_ident()}:
            raise HookError(
                "another thread is in a forward of this model, and one of the two calls needs different values in the "
                "model's fields (MTP off, or over other ranks); call the model from one thread at a time."
            )
