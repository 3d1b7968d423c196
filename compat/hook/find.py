"""The language model inside its wrappers, and what keeps the hook from it: no such keywords, a wrapper, a patch.

Judged by signatures and not by versions.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from torch.nn import Module

from mcore_unpatch.compat.hook.entrance import original_of
from mcore_unpatch.compat.hook.errors import HookMissingError, LegacyPatchError, WrapperRefusesError

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
        return any(takes_hook(forward, by_name=True) for forward in _forwards(self.model))

    @property
    def is_hybrid(self) -> bool:
        """Whether the language model is a HybridModel (or its old name, MambaModel); megatron-core 0.17 has none."""
        if find_spec("megatron.core.models.hybrid") is None:
            return False
        from megatron.core.models.hybrid.hybrid_model import HybridModel

        return isinstance(self.model, HybridModel)


def find_language_model(model: Module) -> HookPath:
    """Follow `.module`, `._orig_mod` and `.language_model` down to Megatron's language model."""
    from megatron.core.models.common.language_module.language_module import LanguageModule

    wrappers: list[Module] = []
    current = model
    while not isinstance(current, LanguageModule):
        inner = next((m for name in _INNER_NAMES if isinstance(m := getattr(current, name, None), Module)), None)
        if inner is None:
            seen = " > ".join(type(m).__name__ for m in [*wrappers, current])
            raise HookMissingError(
                f"no Megatron language model (GPTModel, HybridModel) found in {seen} by following "
                f"{', '.join('.' + name for name in _INNER_NAMES)}; pass the language model itself."
            )
        wrappers.append(current)
        current = inner
    return HookPath(tuple(wrappers), original_of(current))


def argument_names(model: Module) -> tuple[str, ...]:
    """The names of the arguments, in order: of `forward`, or of the one that takes what it passes on as `*args`."""
    for forward in _forwards(model):
        parameters = inspect.signature(forward).parameters
        if not any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
            return tuple(name for name in parameters if name != "self")
    return ()


def _forwards(model: Module) -> Iterator[Callable[..., Any]]:
    """`forward`, and those it overrides as long as each takes `**kwargs` and so can pass on what it does not know."""
    own = vars(model).get("forward")
    found = (vars(cls).get("forward") for cls in type(model).__mro__)
    for forward in [own] if own is not None else filter(None, found):
        yield forward
        if not any(p.kind is p.VAR_KEYWORD for p in inspect.signature(forward).parameters.values()):
            return


def takes_hook(forward: Callable[..., Any], *, by_name: bool = False) -> bool:
    """Whether `forward` takes both keywords, by name or (unless `by_name`) through `**kwargs`."""
    parameters = inspect.signature(forward).parameters
    if all(name in parameters for name in HOOK_KEYWORDS):
        return True
    return not by_name and any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def require_hook(path: HookPath) -> None:
    """Raise unless the language model's own `forward` has the hook."""
    if path.has_hook:
        return
    from megatron.core.models.gpt.gpt_model import GPTModel

    model, name = path.model, type(path.model).__name__
    foreign = foreign_methods(model)
    if path.is_hybrid:
        remedy = "use attach() or provide_hook(), which work through its output layer"
    elif foreign:
        remedy = f"{', '.join(foreign)} replaced Megatron's method: remove that patch"
    elif takes_hook(GPTModel.forward, by_name=True):
        own = type(model).forward
        remedy = f"accept the two keywords in {own.__module__}.{own.__qualname__} and pass them on"
        if not isinstance(model, GPTModel):
            remedy = "only GPTModel and HybridModel are supported"
    else:
        from megatron.core import __version__

        remedy = f"the hook was added in 0.18 and this is {__version__}: upgrade megatron-core"
    raise HookMissingError(f"{name}.forward has no output_processor; {remedy}.")


def require_open_wrappers(path: HookPath) -> None:
    """Raise if a wrapper's `forward` does not accept the keywords."""
    for wrapper in path.wrappers:
        if not takes_hook(wrapper.forward):
            raise WrapperRefusesError(
                f"{type(wrapper).__name__}.forward takes neither output_processor nor **kwargs, so the hook cannot "
                f"reach {type(path.model).__name__} through it; use attach(), which hooks the inner model directly, or "
                "pass the keywords on in the wrapper."
            )


def foreign_methods(module: Module, names: Iterable[str] = _OUTPUT_METHODS) -> list[str]:
    """The qualified names of the functions that replaced any of these methods, on the instance or on its class.

    A method overridden in a subclass is not a patch, nor is Megatron's own method set on the instance by an undone one.
    """
    owners = {cls.__module__ for cls in type(module).__mro__}
    found = []
    for name in names:
        method = vars(module).get(name, getattr(type(module), name, None))
        function = getattr(method, "__func__", method)
        home = getattr(function, "__module__", None)
        if function is not None and home not in owners:
            found.append(f"{home}.{getattr(function, '__qualname__', name)}")
    return found


def refuse_patched(shim: str, module: Module, names: Iterable[str] = _OUTPUT_METHODS, remedy: str = "") -> None:
    """Raise if one of the methods is a patch; the error names it and says how to remove it."""
    found = foreign_methods(module, names)
    if found:
        raise LegacyPatchError(
            f"{shim} cannot work on a patched {type(module).__name__}: {', '.join(found)} replaced Megatron's method; "
            f"{remedy or 'do not install that patch, or undo it first'}."
        )
