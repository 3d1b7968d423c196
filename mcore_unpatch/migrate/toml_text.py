"""Find an array of strings in the text of a TOML file and add an item to it, every other byte kept."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

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
class Array:
    """An array: its key, the offsets of its brackets, and the spans of the strings directly in it."""

    key: tuple[str, ...]
    start: int
    end: int = 0
    items: list[tuple[int, int]] = field(default_factory=list)


def arrays(text: str) -> Iterator[Array]:
    """The arrays that are values of keys, in order."""
    table: tuple[str, ...] = ()
    statement, depth = "", 0  # what stands before the value; how deep inside it we are
    in_value, array = False, None
    for match in _TOKEN.finditer(text):
        token = match[0]
        if in_value:
            if token == "\n" and not depth:
                in_value, statement = False, ""
            elif token in "[{":
                depth += 1
                if token == "[" and depth == 1:
                    array = Array(table + _path(f"{statement} = 0"), match.start())
            elif token in "]}":
                depth -= 1
                if not depth and array:
                    array.end = match.start()
                    yield array
                    array = None
            elif array and depth == 1 and token[0] in "\"'":
                array.items.append(match.span())
        elif token == "=":
            in_value = True
        elif token == "\n":
            if statement.strip():
                table = _path(statement)
            statement = ""
        elif not token.startswith("#"):
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


def with_item(text: str, array: Array, item: str) -> str:
    """The text with one more string in an array: in its order if it has one, laid out like its neighbours."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if not array.items:
        inside = text[array.start + 1 : array.end]
        if "\n" not in inside:
            return f'{text[: array.start + 1]}"{item}"{text[array.end :]}'
        line = text.rfind("\n", 0, array.end) + 1
        return f'{text[:line]}    "{item}",{newline}{text[line:]}'
    position = _position([text[start + 1 : end - 1] for start, end in array.items], item)
    start, end = array.items[max(position - 1, 0)]
    quoted = f"{text[start]}{item}{text[start]}"
    line_start = text.rfind("\n", 0, start) + 1
    indent = text[line_start:start]
    if position == 0:
        gap = newline + indent if indent.isspace() or not indent else " "
        return f"{text[:start]}{quoted},{gap}{text[start:]}"
    line_end = (text + "\n").find("\n", end)
    own_line = not indent.strip() and line_start > array.start and line_end < array.end
    if not own_line:
        if "\n" in text[array.start : start]:  # items below each other, the bracket behind the last one
            return f"{text[:end]},{newline}{' ' * (start - line_start)}{quoted}{text[end:]}"
        return f"{text[:end]}, {quoted}{text[end:]}"
    has_comma = text[end:line_end].lstrip().startswith(",")
    head = text[:end] + ("" if has_comma else ",") + text[end : line_end + 1]
    return f"{head}{indent}{quoted}{',' if has_comma else ''}{newline}{text[line_end + 1 :]}"


def _position(items: list[str], item: str) -> int:
    """Where an item goes: by the alphabet if the others stand so, else at the end."""
    keys = [name.casefold() for name in items]
    return bisect_left(keys, item.casefold()) if len(keys) > 1 and keys == sorted(keys) else len(keys)
