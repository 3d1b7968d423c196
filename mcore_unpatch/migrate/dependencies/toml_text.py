"""The assignments in the text of a TOML file, with their places, and the arrays of strings among their values."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mcore_unpatch.migrate.dependencies.bracketed import Bracketed

_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?!")'
    r"|'''.*?'''(?!')"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|[ \t\r]+"
    r"|[\[\]{},=\n]"
    r"|[^\s\"'\#\[\]{},=]+",
    re.DOTALL,
)


@dataclass(slots=True)
class Assignment:
    """`key = value`: the whole key, where it begins, the span of the value, and its brackets if it is an array."""

    key: tuple[str, ...]
    start: int
    value: tuple[int, int] = (0, 0)
    array: Bracketed | None = None


def assignments(text: str) -> Iterator[Assignment]:
    """Every assignment, in order."""
    table: tuple[str, ...] = ()
    statement, start, depth = "", 0, 0  # what stands before the value and where; how deep inside the value we are
    current: Assignment | None = None
    for match in _TOKEN.finditer(text if text.endswith("\n") else f"{text}\n"):
        token = match[0]
        if current is not None:
            if token == "\n" and not depth:
                yield current
                current, statement = None, ""
                continue
            if not token.isspace() and not token.startswith("#"):
                current.value = (current.value[0] or match.start(), match.end())
            if token in "[{":
                depth += 1
                if token == "[" and depth == 1:
                    current.array = Bracketed(match.start())
            elif token in "]}":
                depth -= 1
                if not depth and current.array:
                    current.array.end = match.start()
            elif current.array and depth == 1 and token[0] in "\"'":
                current.array.items.append(match.span())
        elif token == "=":
            current = Assignment(table + _path(f"{statement} = 0"), start)
        elif token == "\n":
            if statement.strip():
                table = _path(statement)
            statement = ""
        elif not token.startswith("#"):
            start = match.start() if not statement.strip() else start
            statement += token


def _path(statement: str) -> tuple[str, ...]:
    """The key of a table header or an assignment, as the parser of the standard library reads it."""
    data: Any = tomllib.loads(statement.strip())
    path: list[str] = []
    while isinstance(data, dict | list) and data:
        if isinstance(data, list):
            data = data[0]
        else:
            (key, data), *_ = data.items()
            path.append(key)
    return tuple(path)
