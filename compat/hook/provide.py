"""Makes `model(..., output_processor=..., output_processor_context=...)` work, whatever `forward` itself takes."""

from collections.abc import Callable
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from mcore_unpatch.compat.hook.find import HookPath, find_language_model, require_hook
from mcore_unpatch.compat.hook.hybrid import OutputLayerTap
from torch.nn import Module


class Handle:
    """What was installed; `remove()` undoes it, once. As a context manager it does so when the outermost block ends."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []
        self._blocks = 0

    def on_removal(self, *undo: Callable[[], Any]) -> None:
        """Remember how to undo."""
        self._undo += undo

    def remove(self) -> None:
        """Undo everything."""
        while self._undo:
            self._undo.pop(0)()

    def __enter__(self) -> "Handle":
        self._blocks += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._blocks -= 1
        if self._blocks == 0:
            self.remove()


def provide_hook(model: Module) -> Handle:
    """Give the hook to a model that has none and can be served, until the handle is removed.

    Nothing to do where `forward` has the hook. A HybridModel without it is served through its output layer; anything
    else raises `HookMissingError`.
    """
    path = find_language_model(model)
    handle = Handle()
    if path.has_hook:
        return handle
    if not path.is_hybrid:
        require_hook(path)
    tap, users = _taps.get(path.model) or (OutputLayerTap(path), 0)
    _taps[path.model] = (tap, users + 1)
    handle.on_removal(lambda: _release(path))
    return handle


_taps: WeakKeyDictionary[Module, tuple[OutputLayerTap, int]] = WeakKeyDictionary()


def _release(path: HookPath) -> None:
    tap, users = _taps.pop(path.model)
    if users > 1:
        _taps[path.model] = (tap, users - 1)
    else:
        tap.remove()
