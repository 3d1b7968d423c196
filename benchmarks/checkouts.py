"""Imports single modules of large downstream projects, without the packages' own `__init__` files."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def import_from(checkout: Path | None, module: str, bare: list[str]) -> Any:
    """`module` from a checkout, where the packages in `bare` are mere folders; without one, as installed."""
    if checkout is not None:
        for name in bare:
            package = ModuleType(name)
            package.__path__ = [str(checkout.joinpath(*name.split(".")))]
            sys.modules.setdefault(name, package)
    return importlib.import_module(module)


def stand_in(name: str, **values: Any) -> None:
    """A module of that name with those values, for an import whose real one needs half the world."""
    module = ModuleType(name)
    vars(module).update(values)
    sys.modules.setdefault(name, module)


def verl_kernel(checkout: Path | None) -> Any:
    """veRL's fused linear cross-entropy."""
    module = import_from(checkout, "verl.utils.kernel.linear_cross_entropy", ["verl", "verl.utils"])
    return module.linear_cross_entropy
