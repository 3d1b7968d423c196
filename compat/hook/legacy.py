"""Refuses a model that still carries a patch, and names the patch."""

from collections.abc import Iterable

from torch.nn import Module

from mcore_unpatch.compat.hook.errors import HookError
from mcore_unpatch.compat.hook.find import foreign_methods

_OUTPUT = ("forward", "_postprocess")


class LegacyPatchError(HookError):
    """A patch replaced methods of the model and would run instead of the hook, or conflict with it."""


def refuse_patched(shim: str, module: Module, names: Iterable[str] = _OUTPUT, remedy: str = "") -> None:
    """Raise if one of the methods is a patch; the error names it and says how to remove it."""
    found = foreign_methods(module, names)
    if found:
        raise LegacyPatchError(
            f"{shim} cannot work on a patched {type(module).__name__}: {', '.join(found)} replaced Megatron's method; "
            f"{remedy or 'do not install that patch, or undo it first'}."
        )
