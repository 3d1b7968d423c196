"""The longest line a file allows."""

from __future__ import annotations

import ast
import posixpath
import tomllib

from mcore_unpatch.codemods.source import Files, Source

_SETTINGS = (("ruff", "line-length"), ("black", "line-length"), ("isort", "line_length"))


def line_limit(source: Source, files: Files) -> int:
    """What the project's own settings say; else the usual limit that the statements of the file keep to."""
    folder = source.path
    while folder:
        folder = posixpath.dirname(folder)
        try:
            settings = tomllib.loads(files.data(posixpath.join(folder, "pyproject.toml")).decode())["tool"]
            found = [settings.get(tool, {}).get(name) for tool, name in _SETTINGS]
        except (OSError, KeyError, ValueError, RecursionError, AttributeError):
            continue
        if limit := next((one for one in found if isinstance(one, int)), 0):
            return limit
    # Strings and comments are longer than the limit in many places, so lines with them do not count.
    lines = [source.line(number) for number in {node.lineno for node in source.every(ast.stmt)}]
    code = [len(line) for line in lines if len(line) <= 120 and not any(sign in line for sign in "#'\"")]
    return next(limit for limit in (88, 100, 120) if max(code, default=0) <= limit)
