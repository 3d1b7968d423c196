"""The way into a model: the language model inside its wrappers, and what keeps the hook from it.

That is a `forward` without the keywords, a wrapper that refuses them, a patch: seen in signatures, not in versions.
A signature is read once for each function.

PyTorch runs no hooks if a model around the language model calls `language_model.forward(...)`. Such a model gets a twin
as its `.language_model`: a module of a subclass that shares everything with the original (parameters, names and state),
and whose `forward` calls the original as a module. No method changes.
"""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import torch
from torch.nn import Module

from mcore_unpatch.compat.hook import state

HOOK_KEYWORDS = ("output_processor", "output_processor_context")
# Distributed and precision wrappers, torch.compile, and vision-language models, in this order at each step.
_INNER_NAMES = ("module", "_orig_mod", "language_model")
_HELD_AS = "language_model"
_OUTPUT_METHODS = ("forward", "_postprocess")
_KNOWN_WRAPPERS = ("megatron.core.", "torch.")


@dataclass(frozen=True)
class HookPath:
    """The way from what the caller holds to the language model: `wrappers` from the outermost in, then `model`."""

    wrappers: tuple[Module, ...]
    model: Module

    @property
    def has_hook(self) -> bool:
        """Whether the language model's own `forward` takes the hook, or passes it on to one that does.

        Asked again each time: a patch may come and go.
        """
        return any(takes_hook(forward, by_name=True) for forward in _forwards(self.model))

    @property
    def is_hybrid(self) -> bool:
        """Whether the language model is a HybridModel (or its old name, MambaModel); megatron-core 0.17 has none."""
        if find_spec("megatron.core.models.hybrid") is None:
            return False
        from megatron.core.models.hybrid.hybrid_model import HybridModel

        return isinstance(self.model, HybridModel)

    @property
    def passes_keywords(self) -> bool:
        """Whether keywords of a call surely reach the hook: through wrappers of Megatron and PyTorch alone."""
        known = [type(wrapper).__module__.startswith(_KNOWN_WRAPPERS) for wrapper in self.wrappers]
        return all(known) and self.has_hook and all(takes_hook(wrapper.forward) for wrapper in self.wrappers)

    @property
    def has_output(self) -> bool:
        """Whether this pipeline stage makes the model's output."""
        return bool(getattr(self.model, "post_process", True))

    def own_output_methods(self, names: Iterable[str] = _OUTPUT_METHODS) -> list[str]:
        """Those of the methods that are no code of Megatron's: they may change what a processor returns."""
        methods = {name: getattr(self.model, name, None) for name in names}
        named = {name: getattr(method, "__func__", method) for name, method in methods.items() if method is not None}
        return [getattr(method, "__qualname__", name) for name, method in named.items() if not _is_megatrons(method)]


def find_language_model(model: Module) -> HookPath:
    """Follow `.module`, `._orig_mod` and `.language_model` down to Megatron's language model."""
    from megatron.core.models.common.language_module.language_module import LanguageModule

    wrappers: list[Module] = []
    current = model
    while not isinstance(current, LanguageModule):
        inner = next((m for name in _INNER_NAMES if isinstance(m := getattr(current, name, None), Module)), None)
        if inner is None:
            seen = " > ".join(type(m).__name__ for m in [*wrappers, current])
            raise state.HookMissingError(
                f"no Megatron language model (GPTModel, HybridModel) found in {seen} by following "
                f"{', '.join('.' + name for name in _INNER_NAMES)}; pass the language model itself."
            )
        wrappers.append(current)
        current = inner
    return HookPath(tuple(wrappers), original_of(current))


@lru_cache(maxsize=256)
def _parameters(function: Callable[..., Any]) -> tuple[tuple[str, ...], frozenset[Any]]:
    """The names in order, and which kinds there are."""
    parameters = inspect.signature(function).parameters
    return tuple(name for name in parameters if name != "self"), frozenset(p.kind for p in parameters.values())


def argument_names(model: Module) -> tuple[str, ...]:
    """The names of the arguments, in order: of `forward`, or of the one that takes what it passes on as `*args`."""
    signatures = (_parameters(forward) for forward in _forwards(model))
    return next((names for names, kinds in signatures if inspect.Parameter.VAR_POSITIONAL not in kinds), ())


def _forwards(model: Module) -> Iterator[Callable[..., Any]]:
    """`forward`, and those it overrides as long as each takes `**kwargs` and so can pass on what it does not know.

    One set on the instance passes on to none that is known.
    """
    if "forward" in vars(model):
        yield getattr(model.forward, "__func__", model.forward)
        return
    for forward in [vars(cls).get("forward") for cls in type(model).__mro__]:
        if forward is not None:
            yield forward
            if inspect.Parameter.VAR_KEYWORD not in _parameters(forward)[1]:
                return


def takes_hook(forward: Callable[..., Any], *, by_name: bool = False) -> bool:
    """Whether `forward` takes both keywords, by name or (unless `by_name`) through `**kwargs`."""
    names, kinds = _parameters(getattr(forward, "__func__", forward))
    named = HOOK_KEYWORDS[0] in names and HOOK_KEYWORDS[1] in names
    return named or (inspect.Parameter.VAR_KEYWORD in kinds and not by_name)


def missing_hook(path: HookPath) -> state.HookMissingError:
    """The error for a language model whose `forward` has no hook, and that is no HybridModel."""
    from megatron.core.models.gpt.gpt_model import GPTModel

    model, name = path.model, type(path.model).__name__
    foreign = foreign_methods(model)
    if foreign:
        remedy = f"{', '.join(foreign)} replaced Megatron's method: remove that patch"
    elif isinstance(model, GPTModel):
        own = type(model).forward
        remedy = f"accept the two keywords in {own.__module__}.{own.__qualname__} and pass them on"
    else:
        remedy = "only GPTModel and HybridModel are supported"
    return state.HookMissingError(f"{name}.forward has no output_processor; {remedy}.")


def require_open_wrappers(path: HookPath) -> None:
    """Raise if a wrapper's `forward` does not accept the keywords."""
    for wrapper in path.wrappers:
        if not takes_hook(wrapper.forward):
            raise state.WrapperRefusesError(
                f"{type(wrapper).__name__}.forward takes neither output_processor nor **kwargs, so the hook cannot "
                f"reach {type(path.model).__name__} through it; use attach(), which hooks the inner model directly, or "
                "pass the keywords on in the wrapper."
            )


def foreign_methods(module: Module, names: Iterable[str] = _OUTPUT_METHODS) -> list[str]:
    """The qualified names of the functions that replaced any of these methods, on the instance or on its class.

    A method overridden in a subclass is not a patch, nor is Megatron's own method set on the instance by an undone one.
    """
    owners = {cls.__module__ for cls in type(module).__mro__}
    foreign = []
    for name in names:
        method = vars(module).get(name, getattr(type(module), name, None))
        function = getattr(method, "__func__", method)
        home = getattr(function, "__module__", None)
        if function is not None and home not in owners:
            foreign.append(f"{home}.{getattr(function, '__qualname__', name)}")
    return foreign


def refuse_patched(shim: str, module: Module, names: Iterable[str] = _OUTPUT_METHODS, remedy: str = "") -> None:
    """Raise if one of the methods is a patch; the error names it and says how to remove it."""
    found = foreign_methods(module, names)
    if found:
        raise state.LegacyPatchError(
            f"{shim} cannot work on a patched {type(module).__name__}: {', '.join(found)} replaced Megatron's method; "
            f"{remedy or 'do not install that patch, or undo it first'}."
        )


def foreign_code(method: Any) -> str | None:
    """Where this function, or one it calls, is defined, if that is not in Megatron.

    By the file of the code object: names are copied by `functools.wraps`.
    """
    function = getattr(method, "__func__", method)
    if function is None:
        return None
    if not isinstance(function, FunctionType):
        return repr(function)
    for called in [function, *[function.__globals__.get(name) for name in function.__code__.co_names]]:
        if isinstance(called, FunctionType) and not _is_megatrons(called):
            code = called.__code__
            return f"{code.co_filename}:{code.co_firstlineno} ({code.co_qualname})"
    return None


def _is_megatrons(function: Any) -> bool:
    return isinstance(function, FunctionType) and function.__code__.co_filename.startswith(_own_folders())


@cache
def _own_folders() -> tuple[str, ...]:
    import megatron.core

    return tuple(f"{Path(package.__path__[0])}/" for package in (megatron.core, torch))


class _Twin:
    """Our part of the twin's class; its fields are outside the `__dict__` it shares."""

    __slots__ = ("handle", "original")

    original: Module
    handle: state.Handle

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.original(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.original(*args, **kwargs)


def original_of(module: Module) -> Module:
    """The module itself, or the original of a twin."""
    return module.original if isinstance(module, _Twin) else module


def enter_as_module(path: HookPath) -> Callable[[], None]:
    """Make the innermost wrapper call the language model as a module; returns a function that undoes it, once.

    Only a wrapper with a `.language_model` needs it: Megatron's and PyTorch's own wrappers call modules.
    """
    model, holder = path.model, path.wrappers[-1] if path.wrappers else None
    held = None if holder is None else dict(holder.named_children()).get(_HELD_AS)
    if holder is None or held is None or original_of(held) is not model:
        return lambda: None
    with state.INSTALLING:
        twin: Any = getattr(holder, _HELD_AS)
        if twin is model:
            twin = twin_of(model, _Twin)
            for name, value in (("original", model), ("handle", state.Handle())):
                object.__setattr__(twin, name, value)
            setattr(holder, _HELD_AS, twin)

            def leave() -> None:
                if getattr(holder, _HELD_AS, None) is twin:
                    setattr(holder, _HELD_AS, model)

            twin.handle.on_removal(leave)
        released: Callable[[], None] = twin.handle.claim().release
        return released


def bypassed(model: Module) -> state.HookBypassedError:
    """The error for a `forward` called as a method; make it while `forward` runs, so that it can name the caller."""
    name = type(model).__name__
    forwards: list[Any] = [vars(cls).get("forward") for cls in type(model).__mro__]
    codes: set[CodeType] = {forward.__code__ for forward in forwards if hasattr(forward, "__code__")}
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code not in codes:
        frame = frame.f_back
    while frame.f_back is not None and frame.f_code in codes:
        frame = frame.f_back
    caller = f" by {frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})" if frame.f_back else ""
    return state.HookBypassedError(
        f"{name}.forward was called as a plain method{caller}, so PyTorch runs no hooks and the attached processor "
        "would be skipped. Call the module there, `language_model(...)` and not `language_model.forward(...)`, or call "
        f"attach() on the model that has this {name} as `.{_HELD_AS}`."
    )


def twin_of(module: Module, part: type) -> Any:
    """A module of a subclass, with `part` before the module's own class, that shares all state with the original."""
    kind = type(module)
    twin: Any = object.__new__(type(kind.__name__, (part, kind), {"__module__": kind.__module__}))
    object.__setattr__(twin, "__dict__", vars(module))
    return twin
