"""A model that still carries somebody's patch: found by its methods, and refused by the name of the patch."""

from collections.abc import Iterable

from torch.nn import Module

from mcore_unpatch.compat.hook.errors import HookError

_OUTPUT = ("forward", "_postprocess")


class LegacyPatchError(HookError):
    """The model's methods were replaced by a patch that would run instead of the hook, or against it."""


def patched_methods(module: Module, names: Iterable[str] = _OUTPUT) -> list[str]:
    """`module.function` of every method of `module` that somebody replaced, on the instance or on its class.

    A subclass that overrides a method is a choice of its author, and Megatron's own method put back on the instance by
    an undone patch is no patch.
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


def refuse_patched(shim: str, module: Module, names: Iterable[str] = _OUTPUT, remedy: str = "") -> None:
    """Raise if one of the methods is a patch, with its name and the way out."""
    found = patched_methods(module, names)
    if found:
        raise LegacyPatchError(
            f"{shim} cannot stand on a patched {type(module).__name__}: {', '.join(found)} took the place of "
            f"Megatron's own. {remedy or 'Do not install that patch, or undo it first'}"
        )
