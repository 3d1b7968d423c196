"""A model that still carries somebody's patch: found by its methods, and refused by the name of the patch."""

from collections.abc import Iterable

from torch.nn import Module

from mcore_unpatch.compat.hook.errors import HookError
from mcore_unpatch.compat.hook.find import foreign_methods

_OUTPUT = ("forward", "_postprocess")


class LegacyPatchError(HookError):
    """The model's methods were replaced by a patch that would run instead of the hook, or against it."""


def refuse_patched(shim: str, module: Module, names: Iterable[str] = _OUTPUT, remedy: str = "") -> None:
    """Raise if one of the methods is a patch, with its name and the way out."""
    found = foreign_methods(module, names)
    if found:
        raise LegacyPatchError(
            f"{shim} cannot stand on a patched {type(module).__name__}: {', '.join(found)} took the place of "
            f"Megatron's own. {remedy or 'Do not install that patch, or undo it first'}"
        )
