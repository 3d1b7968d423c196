"""A list of strings between brackets, as TOML and Python write it, with one string more and every other byte kept."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field


@dataclass(slots=True)
class Bracketed:
    """The offsets of the two brackets, and the spans of the strings directly between them, quotes included."""

    start: int
    end: int = 0
    items: list[tuple[int, int]] = field(default_factory=list)


def with_item(text: str, listed: Bracketed, item: str) -> str:
    """The text with one more string in a list: in its order if it has one, laid out like its neighbours."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if not listed.items:
        inside = text[listed.start + 1 : listed.end]
        if "\n" not in inside:
            return f'{text[: listed.start + 1]}"{item}"{text[listed.end :]}'
        line = text.rfind("\n", 0, listed.end) + 1
        return f'{text[:line]}    "{item}",{newline}{text[line:]}'
    position = _position([text[start + 1 : end - 1] for start, end in listed.items], item)
    start, end = listed.items[max(position - 1, 0)]
    quoted = f"{text[start]}{item}{text[start]}"
    line_start = text.rfind("\n", 0, start) + 1
    indent = text[line_start:start]
    if position == 0:
        gap = newline + indent if indent.isspace() or not indent else " "
        return f"{text[:start]}{quoted},{gap}{text[start:]}"
    line_end = (text + "\n").find("\n", end)
    own_line = not indent.strip() and line_start > listed.start and line_end < listed.end
    if not own_line:
        if "\n" in text[listed.start : start]:  # items below each other, the bracket behind the last one
            return f"{text[:end]},{newline}{' ' * (start - line_start)}{quoted}{text[end:]}"
        return f"{text[:end]}, {quoted}{text[end:]}"
    has_comma = text[end:line_end].lstrip().startswith(",")
    head = text[:end] + ("" if has_comma else ",") + text[end : line_end + 1]
    return f"{head}{indent}{quoted}{',' if has_comma else ''}{newline}{text[line_end + 1 :]}"


def _position(items: list[str], item: str) -> int:
    """Where an item goes: by the alphabet if the others stand so, else at the end."""
    keys = [name.casefold() for name in items]
    return bisect_left(keys, item.casefold()) if len(keys) > 1 and keys == sorted(keys) else len(keys)
