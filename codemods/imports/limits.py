"""The longest line a file allows."""

from __future__ import annotations

import ast
import posixpath
import tomllib

from mcore_unpatch.codemods.source import Files, Source

_SETTINGS = (("ruff", "line-length"), ("black", "line-length"), ("isort", "line_length"))


def line_limit(source: Source, files: Files) -> int:
    """What the project's own settings say; else the usual limit that the statements of the file keep to."""
    return _configured(source.path, files) or _observed(source)


def _configured(path: str, files: Files) -> int | None:
    folder = path
    while folder:
        folder = posixpath.dirname(folder)
        try:
            settings = tomllib.loads(files.data(posixpath.join(folder, "pyproject.toml")).decode())["tool"]
        except (OSError, KeyError, ValueError, RecursionError):
            continue
        for tool, name in _SETTINGS:
            limit = settings.get(tool, {}).get(name)
            if isinstance(limit, int):
                return limit
    return None


def _observed(source: Source) -> int:
    """Strings and comments are longer than the limit in many places, so lines with them do not count."""
    longest = 0
    for number in {node.lineno for node in source.every(ast.stmt)}:
        line = source.line(number)
        if len(line) <= 120 and not any(sign in line for sign in "#'\""):
            longest = max(longest, len(line))
    return next(limit for limit in (88, 100, 120) if longest <= limit)
