"""Replacements for downstream patches of Megatron Core, built on its official `output_processor` hook.

The public names stand in `__init__.pyi`. Each is loaded on first use: the tool itself runs without torch.
"""

import ast
from importlib import import_module
from importlib.resources import files
from typing import Any

from .requirements import missing_from_extra

_HOME = {
    alias.name: node.module
    for node in ast.parse(files(__name__).joinpath("__init__.pyi").read_text("utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        extra = "ops" if str(_HOME[name]).startswith("fused_head") else "compat"
        raise missing_from_extra(f"{__name__}.{name}", error, extra) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
