"""The way into a model, what keeps the hook from it, and what is installed on one for a while."""

import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, TypeVar
from weakref import WeakSet

import torch
from torch.nn import Module

from . import call as hook

HOOK_KEYWORDS = ("output_processor", "output_processor_context")
# Distributed and precision wrappers, torch.compile, and vision-language models, in this order at each step.
_INNER_NAMES = ("module", "_orig_mod", "language_model")
_OUTPUT_METHODS = ("forward", "_postprocess")


@dataclass(frozen=True)
class HookPath:
    """The way from what the caller holds to the language model: `wrappers` from the outermost in, then `model`."""

    wrappers: tuple[Module, ...]
    model: Module

    @property
    def has_hook(self) -> bool:
        """Whether the language model's own `forward` takes the hook, or passes it on to one that does."""
        return any(map(names_hook, _forwards(self.model)))

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
        return self.has_hook and all(
            type(wrapper).__module__.startswith(("megatron.core.", "torch.")) and takes_hook(wrapper.forward)
            for wrapper in self.wrappers
        )

    @property
    def has_output(self) -> bool:
        """Whether this pipeline stage makes the model's output."""
        return bool(getattr(self.model, "post_process", True))

    def own_output_methods(self, names: Iterable[str] = _OUTPUT_METHODS) -> list[str]:
        """Those of the methods that are no code of Megatron's: they may change what a processor returns."""
        methods = {name: getattr(self.model, name, None) for name in names}
        return [
            getattr(method, "__qualname__", name)
            for name, method in methods.items()
            if method is not None and not _is_megatrons(getattr(method, "__func__", method))
        ]


def find_language_model(model: Module) -> HookPath:
    """Follow `.module`, `._orig_mod` and `.language_model` down to Megatron's language model."""
    from megatron.core.models.common.language_module.language_module import LanguageModule

    way = [model]
    while not isinstance(way[-1], LanguageModule):
        inner = next((m for name in _INNER_NAMES if isinstance(m := getattr(way[-1], name, None), Module)), None)
        if inner is None:
            raise hook.HookMissingError(
                f"no Megatron language model (GPTModel, HybridModel) found in "
                f"{' > '.join(type(one).__name__ for one in way)} by following "
                f"{', '.join('.' + name for name in _INNER_NAMES)}; pass the language model itself."
            )
        way.append(inner)
    return HookPath(tuple(way[:-1]), way[-1])


@lru_cache(maxsize=256)
def _parameters(function: Callable[..., Any]) -> tuple[tuple[str, ...], frozenset[Any]]:
    """The names in order, and which kinds there are."""
    parameters = inspect.signature(function).parameters
    return tuple(name for name in parameters if name != "self"), frozenset(p.kind for p in parameters.values())


def argument_names(model: Module) -> tuple[str, ...]:
    """The names of the arguments, in order: of `forward`, or of the one that takes what it passes on as `*args`."""
    signatures = (_parameters(forward) for forward in _forwards(model))
    return next((names for names, kinds in signatures if inspect.Parameter.VAR_POSITIONAL not in kinds), ())


def _forwards(model: Module) -> list[Callable[..., Any]]:
    """`forward`, and those it overrides as long as each takes `**kwargs`; one set on the instance passes on to none."""
    if "forward" in vars(model):
        return [getattr(model.forward, "__func__", model.forward)]
    found = []
    for cls in type(model).__mro__:
        if (forward := vars(cls).get("forward")) is not None:
            found.append(forward)
            if inspect.Parameter.VAR_KEYWORD not in _parameters(forward)[1]:
                break
    return found


def takes_hook(forward: Callable[..., Any]) -> bool:
    """Whether `forward` takes both keywords, by name or through `**kwargs`."""
    function = getattr(forward, "__func__", forward)
    return inspect.Parameter.VAR_KEYWORD in _parameters(function)[1] or names_hook(function)


def names_hook(forward: Callable[..., Any]) -> bool:
    """Whether `forward` has both keywords by name."""
    return {*HOOK_KEYWORDS} <= {*_parameters(getattr(forward, "__func__", forward))[0]}


def missing_hook(path: HookPath) -> hook.HookMissingError:
    """The error for a language model whose `forward` has no hook, and that is no HybridModel."""
    from megatron.core.models.gpt.gpt_model import GPTModel

    kind, remedy = type(path.model), "only GPTModel and HybridModel are supported"
    if foreign := foreign_methods(path.model):
        remedy = f"{', '.join(foreign)} replaced Megatron's method: remove that patch"
    elif isinstance(path.model, GPTModel):
        remedy = f"accept the two keywords in {kind.forward.__module__}.{kind.forward.__qualname__} and pass them on"
    return hook.HookMissingError(f"{kind.__name__}.forward has no output_processor; {remedy}.")


def require_open_wrappers(path: HookPath) -> None:
    """Raise if a wrapper's `forward` does not accept the keywords."""
    if (closed := next((one for one in path.wrappers if not takes_hook(one.forward)), None)) is not None:
        raise hook.WrapperRefusesError(
            f"{type(closed).__name__}.forward takes neither output_processor nor **kwargs, so the hook cannot reach "
            f"{type(path.model).__name__}; use attach(), which hooks the inner model directly, or pass them on there."
        )


def foreign_methods(module: Module | type[Module], names: Iterable[str] = _OUTPUT_METHODS) -> list[str]:
    """The functions that replaced any of these methods, on the instance or its class; to override one is no patch."""
    kind = module if isinstance(module, type) else type(module)
    owners = {cls.__module__ for cls in kind.__mro__}
    foreign = []
    for name in names:
        method = vars(module).get(name, getattr(kind, name, None))
        function = getattr(method, "__func__", method)
        home = getattr(function, "__module__", None)
        if function is not None and home not in owners:
            foreign.append(f"{home}.{getattr(function, '__qualname__', name)}")
    return foreign


def refuse_patched(shim: str, module: Module, names: Iterable[str] = _OUTPUT_METHODS, remedy: str = "") -> None:
    """Raise if one of the methods is a patch; the error names it and says how to remove it."""
    if found := foreign_methods(module, names):
        text = f"{shim} cannot work on a patched {type(module).__name__}: {', '.join(found)} replaced Megatron's method"
        raise hook.LegacyPatchError(f"{text}; {remedy or 'do not install that patch, or undo it first'}.")


def foreign_code(*methods: Any) -> str | None:
    """Where the first of these functions, or one it calls, is defined that is not in Megatron."""
    for method in methods:
        function = getattr(method, "__func__", method)
        if function is None:
            continue
        if not isinstance(function, FunctionType):
            return repr(function)
        for called in [function, *[function.__globals__.get(name) for name in function.__code__.co_names]]:
            if isinstance(called, FunctionType) and not _is_megatrons(called):
                code = called.__code__
                return f"{code.co_filename}:{code.co_firstlineno} ({code.co_qualname})"
    return None


def _is_megatrons(function: Any) -> bool:
    """Whether a function's code is in a file of Megatron's or of torch's: names are copied by `functools.wraps`."""
    return isinstance(function, FunctionType) and function.__code__.co_filename.startswith(_own_folders())


@cache
def _own_folders() -> tuple[str, ...]:
    import megatron.core

    return tuple(f"{Path(package.__path__[0])}/" for package in (megatron.core, torch))


def running_forward(kind: type[Module]) -> FrameType | None:
    """The innermost `forward` of a model of this class that runs now, if one does."""
    forwards: list[Any] = [vars(cls).get("forward") for cls in kind.__mro__]
    codes = {forward.__code__ for forward in forwards if hasattr(forward, "__code__")}
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code not in codes:
        frame = frame.f_back
    return frame


def bypassed(model: Module) -> hook.HookBypassedError:
    """The error for a `forward` called as a method; make it while `forward` runs, so that it can name the caller."""
    name, frame = type(model).__name__, running_forward(type(model))
    while frame is not None and frame.f_code.co_name == "forward" and frame.f_locals.get("self") is model:
        frame = frame.f_back
    caller = f" by {frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})" if frame else ""
    return hook.HookBypassedError(
        f"{name}.forward was called as a plain method{caller}, so PyTorch runs no hooks, and what was installed would "
        "be skipped. Call the module there, `language_model(...)` and not `language_model.forward(...)`; or, where the "
        "caller takes **kwargs, pass the processor by keyword: call_with_processor."
    )


def refuse_reentrant_checkpoint(kind: str) -> None:
    """Raise for a result of this kind if it leaves a reentrant checkpoint to which a gradient was to come back."""
    frame: FrameType | None = None if torch.is_grad_enabled() else sys._getframe()  # there it runs without gradients
    while frame is not None and frame.f_code.co_qualname != "CheckpointFunction.forward":
        frame = frame.f_back
    if frame is not None and frame.f_locals["ctx"].next_functions:
        text = f"{kind} is returned from a reentrant checkpoint, which finds no tensor to differentiate in it"
        raise hook.HookError(f"{text}: no gradient; pass use_reentrant=False to torch.utils.checkpoint.checkpoint.")


_Value = TypeVar("_Value")
# By the thread, until its call ends. The next replaces what an interrupted one left: no hook runs after a Ctrl-C.
PerThread = dict[int, _Value]

# Held while something shared by calls is looked for and installed, or given up and removed.
INSTALLING = threading.RLock()

PROBING: ContextVar[bool] = ContextVar("probing", default=False)  # while a layer is called on one row for its hooks
VALUE_HEADS: WeakSet[Module] = WeakSet()  # layers that `add_value_head` put there


class Handle:
    """What was installed; `remove()` undoes it, and so does the end of a `with` block, unless others hold it too."""

    def __init__(self) -> None:
        self._undo = ExitStack()
        self._holders = 0
        self._removed = False

    def on_removal(self, *undo: Callable[[], Any]) -> None:
        """Add functions to call on removal, the last first."""
        for one in undo:
            self._undo.callback(one)

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
        self._undo.close()

    def __enter__(self) -> "Handle":
        if self._removed:
            raise hook.HookError("this handle was removed, so nothing is installed any more; attach again.")
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


class OneCallFields:
    """Fields set for the current call, data only. All threads see them, so `set` raises while another is inside."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []
        self._inside: set[int | None] = set()

    def begin(self) -> None:
        """Begin a call; restores what an interrupted call of this thread left set."""
        self._inside &= {thread.ident for thread in threading.enumerate()}
        if self._before:
            self._require_alone()
            self._put_back()
        self._inside.add(threading.get_ident())

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Give `owner.name` another value until `restore`."""
        self._require_alone()
        self._before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def configure(self, model: Any, name: str, value: Any) -> None:
        """Give the model a changed configuration; its layers keep theirs, which they may read in the backward."""
        config = copy(model.config)
        setattr(config, name, value)
        self.set(model, "config", config)

    def leave_out_mtp(self, model: Any, keywords: dict[str, Any], known: Sequence[str]) -> None:
        """No multi-token prediction in this call, neither its layers nor a loss; `known` are the model's arguments."""
        if "compute_mtp_loss" in known:  # HybridModel on Megatron's main branch
            keywords.setdefault("compute_mtp_loss", False)
            return
        self.configure(model, "mtp_num_layers", None)
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
            text = (
                "another thread is in a forward of this model, and the two calls need different values in its fields "
            )
            raise hook.HookError(f"{text}(MTP off, or over other ranks); call the model from one thread at a time.")
