"""Makes `model(..., output_processor=..., output_processor_context=...)` work even if `forward` lacks the hook."""

from collections.abc import Callable
from typing import Any, TypeVar

from torch.nn import Module

from mcore_unpatch.compat.hook.entrance import enter_as_module
from mcore_unpatch.compat.hook.errors import HookError
from mcore_unpatch.compat.hook.find import find_language_model, require_hook
from mcore_unpatch.compat.hook.hybrid import OutputLayerTap
from mcore_unpatch.compat.hook.under_way import INSTALLING

_Kind = TypeVar("_Kind")


class Handle:
    """A handle to what was installed; `remove()` undoes it, once.

    As a context manager it does so when the outermost block ends, unless another caller holds it too.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []
        self._claims = 0
        self._blocks = 0
        self._held_before = False
        self._removed = False

    def on_removal(self, *undo: Callable[[], Any]) -> None:
        """Add functions to call on removal."""
        self._undo += undo

    def claim(self) -> "Handle":
        """Count one more holder of this handle."""
        self._claims += 1
        return self

    def remove(self) -> None:
        """Undo everything, even if others hold the handle."""
        self._removed = True
        while self._undo:
            self._undo.pop(0)()

    def __enter__(self) -> "Handle":
        if self._removed:
            raise HookError("this handle was removed, so nothing is installed any more; attach again.")
        if self._blocks == 0:
            self._held_before = self._claims > 1
        self._blocks += 1
        return self

    def __exit__(self, *error: object) -> None:
        self._blocks -= 1
        self._claims -= 1
        if self._blocks == 0 and self._claims <= 0 and not self._held_before:
            self.remove()


def provide_hook(model: Module) -> Handle:
    """Provide the hook on a model whose `forward` lacks it, until the handle is removed.

    Does nothing if `forward` has the hook. For a HybridModel without it the hook works through the output layer; any
    other model raises `HookMissingError`.
    """
    path = find_language_model(model)
    handle = Handle()
    if path.has_hook:
        return handle
    if not path.is_hybrid:
        require_hook(path)
    with INSTALLING:
        tap = installed_on(path.model, OutputLayerTap) or OutputLayerTap(path)
        tap.users += 1
    handle.on_removal(tap.release, enter_as_module(path.wrappers, path.model))
    return handle


def installed_on(model: Module, kind: type[_Kind]) -> _Kind | None:
    """The `kind` one of whose methods is a forward pre-hook of `model`, if any."""
    owners = (getattr(hook, "__self__", None) for hook in model._forward_pre_hooks.values())
    return next((owner for owner in owners if isinstance(owner, kind)), None)
