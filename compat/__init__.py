"""Replacements for downstream patches of Megatron Core, built on its official `output_processor` hook.

The public names stand in `__init__.pyi`. Each is loaded on first use: the tool itself runs without torch.
"""

import ast
from importlib import import_module
from importlib.resources import files
from typing import Any

_FROM_EXTRA = {"megatron", "torch", "triton"}
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
        missing = (error.name or "").partition(".")[0]
        if missing not in _FROM_EXTRA:
            raise
        raise ImportError(
            f"{__name__}.{name} needs {missing}, which is not installed; run `pip install 'mcore-unpatch[compat]'`."
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
