"""Runs a language model's hooks even if the model around it calls `language_model.forward(...)`.

PyTorch runs no hooks if the method is called. Such a model gets a twin as its `.language_model`: a module of a subclass
that shares everything with the original (parameters, names and state), and whose `forward` calls the original as a
module. No method changes.
"""

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

from torch.nn import Module

from mcore_unpatch.compat.hook.errors import HookBypassedError
from mcore_unpatch.compat.hook.under_way import INSTALLING

_HELD_AS = "language_model"


class _Twin:
    """Our part of the twin's class; its fields are outside the `__dict__` it shares."""

    __slots__ = ("original", "users")

    original: Module
    users: int

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.original(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.original(*args, **kwargs)


def original_of(module: Module) -> Module:
    """The module itself, or the original of a twin."""
    return module.original if isinstance(module, _Twin) else module


def enter_as_module(wrappers: tuple[Module, ...], model: Module) -> Callable[[], None]:
    """Make the innermost of `wrappers` call `model` as a module; returns a function that undoes it, once.

    Only a wrapper with a `.language_model` needs it: Megatron's and PyTorch's own wrappers call modules.
    """
    holder = wrappers[-1] if wrappers else None
    held = None if holder is None else dict(holder.named_children()).get(_HELD_AS)
    if holder is None or held is None or original_of(held) is not model:
        return lambda: None
    with INSTALLING:
        twin: Any = getattr(holder, _HELD_AS)
        if twin is model:
            twin = _twin_of(model)
            setattr(holder, _HELD_AS, twin)
        twin.users += 1

    def leave() -> None:
        with INSTALLING:
            twin.users -= 1
            if twin.users == 0 and getattr(holder, _HELD_AS, None) is twin:
                setattr(holder, _HELD_AS, model)

    return leave


def bypassed(model: Module) -> HookBypassedError:
    """The error for a `forward` called as a method; make it while `forward` runs, so that it can name the caller."""
    name = type(model).__name__
    return HookBypassedError(
        f"{name}.forward was called as a plain method{_caller_of(model)}, so PyTorch runs no hooks and the attached "
        f"processor would be skipped. Call the module there, `language_model(...)` and not "
        f"`language_model.forward(...)`, or call attach() on the model that has this {name} as `.{_HELD_AS}`."
    )


def _twin_of(model: Module) -> Any:
    kind = type(model)
    twin: Any = object.__new__(type(kind.__name__, (_Twin, kind), {"__module__": kind.__module__}))
    object.__setattr__(twin, "__dict__", vars(model))
    object.__setattr__(twin, "original", model)
    object.__setattr__(twin, "users", 0)
    return twin


def _caller_of(model: Module) -> str:
    codes: set[CodeType] = {vars(cls)["forward"].__code__ for cls in type(model).__mro__ if _is_python(cls)}
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code not in codes:
        frame = frame.f_back
    while frame.f_back is not None and frame.f_code in codes:
        frame = frame.f_back
    if frame.f_back is None:
        return ""
    return f" by {frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"


def _is_python(cls: type) -> bool:
    return hasattr(vars(cls).get("forward"), "__code__")
