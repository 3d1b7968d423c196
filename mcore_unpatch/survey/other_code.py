"""Python that stands in no Python file: notebooks, scripts, recipes. It is not read, and named where it may patch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from mcore_unpatch.scanner.sources import prefilter
from mcore_unpatch.scanner.sources.parsing import Unreadable

_PYTHON = (".ipynb", ".ipy", ".pth", ".py3", ".pyc", ".pyx")
_ENDINGS = (*_PYTHON, ".sh", ".bash", ".yml", ".yaml", ".mk", ".jinja", ".j2", ".in")
_RECIPES = ("dockerfile", "makefile", "justfile")
_IMPORTS = re.compile(rb"\b(?:import|from)\s++megatron\b")
# `sed -i ... /opt/Megatron-LM/megatron/core/utils.py`, `rsync ours/ $MEGATRON/megatron/core/`
_EDITED = re.compile(
    rb"\b(?:sed|perl|cp|rsync|COPY|ADD)\b[^\n]{0,300}[\s/]megatron/(?:core|training)/[\w/]++\.py\b"
    rb"|\brsync\b[^\n]{0,300}[\s/]megatron/(?:core|training)/?[\"']?[ \t]*+(?:[\n;&|]|$)"
)
_SHOWN = 3


def not_read(names: Iterable[str], read: Callable[[str], bytes]) -> str:
    """A sentence on the files with code that may patch Megatron and is not read; empty where there are none."""
    files = [name for name in names if _may_hold_code(name) and _may_patch(name, read)]
    if not files:
        return ""
    more = f" and {len(files) - _SHOWN} more" if len(files) > _SHOWN else ""
    return f"Not read, though code in them may patch Megatron: {', '.join(files[:_SHOWN])}{more}."


def _may_hold_code(path: str) -> bool:
    folder, _, name = path.lower().rpartition("/")
    named = name.endswith(_ENDINGS) or "." not in name or any(word in name for word in _RECIPES)
    return named and not folder.endswith("__pycache__")  # Python takes nothing from there without the source


def _may_patch(path: str, read: Callable[[str], bytes]) -> bool:
    try:
        data = read(path)
    except (OSError, Unreadable):
        return False
    if b"megatron" not in data or path.endswith(".pyc"):
        return b"megatron.core" in data
    lines = data.replace(rb"\n", b"\n") if path.endswith(".ipynb") else data
    about = _IMPORTS.search(lines) and prefilter.may_install(lines, False, is_python=False)
    return bool(about or _EDITED.search(data))
