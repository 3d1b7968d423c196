"""Poetry's tables of dependencies in a pyproject.toml."""

from __future__ import annotations

import json
import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mcore_unpatch.migrate.dependencies.bracketed import Bracketed, with_item
from mcore_unpatch.migrate.dependencies.listing import Listing
from mcore_unpatch.migrate.dependencies.toml_text import Assignment, assignments

_MAIN = ("tool", "poetry", "dependencies")
_REQUIREMENT = re.compile(r"([^\[]+)\[(.+)\]")


class PoetryTable(Listing):
    """A table of requirements: `name = "version"` or `name = {version = "...", extras = [...]}`."""

    def __init__(self, file: Path, text: str, key: tuple[str, ...], lines: list[Assignment]) -> None:
        self.key, self.lines = key, lines
        requirements, _ = self.meaning(text)
        super().__init__(file, text, requirements, [], key == _MAIN)

    def meaning(self, text: str) -> tuple[list[str], object]:
        """The entries as `name[extras]` with what else they say, and the file without the table."""
        data: Any = tomllib.loads(text)
        table = data
        for key in self.key[:-1]:
            table = table[key]
        return [_requirement(name, value) for name, value in table.pop(self.key[-1]).items()], data

    def _with_requirement(self, requirement: str) -> str:
        match = _REQUIREMENT.fullmatch(requirement)
        if match is None or not self.lines:
            raise self.refusal(requirement)
        line = f'{match[1]} = {{version = "*", extras = ["{match[2]}"]}}'
        newline = "\r\n" if "\r\n" in self.text else "\n"
        before = self._line_before(match[1])
        if before is None:
            start = self.lines[0].start
            return f"{self.text[:start]}{line}{newline}{self.text[start:]}"
        end = self.text.find("\n", before.value[1]) + 1
        return f"{self.text[:end]}{line}{newline}{self.text[end:]}" if end else f"{self.text}{newline}{line}"

    def _line_before(self, name: str) -> Assignment | None:
        """The entry that a new one follows: by the alphabet if the others stand so, else the last one."""
        named = [line for line in self.lines if line.key[-1] != "python"]
        keys = [line.key[-1].casefold() for line in named]
        position = bisect_left(keys, name) if len(keys) > 1 and keys == sorted(keys) else len(keys)
        place = self.lines.index(named[position]) if position < len(named) else len(self.lines)
        return self.lines[place - 1] if place else None

    def _with_extra(self, index: int, extra: str) -> str:
        name = self.requirements[index].partition(" ")[0].partition("[")[0]
        line = next((line for line in self.lines if line.key[-1] == name), None)
        if line is None:  # it has a table of its own, or dotted keys
            raise self.refusal(f"{name}[{extra}]")
        start, end = line.value
        value = self.text[start:end]
        if value[0] in "\"'":
            value = f'{{version = {value}, extras = ["{extra}"]}}'
        elif extras := re.search(r"\bextras\s*=\s*\[([^\]]*)\]", value):
            items = [match.span() for match in re.finditer(r"\"[^\"]*\"|'[^']*'", value[: extras.end()])]
            inside = [span for span in items if span[0] > extras.start(1) - 1]
            value = with_item(value, Bracketed(extras.start(1) - 1, extras.end() - 1, inside), extra)
        elif value[0] == "{":
            last = len(value[:-1].rstrip())
            value = f'{value[:last]}, extras = ["{extra}"]{value[last:]}'
        return self.text[:start] + value + self.text[end:]


def poetry_tables(file: Path, text: str) -> Iterator[PoetryTable]:
    """Those of a file that have an entry."""
    tables: dict[tuple[str, ...], list[Assignment]] = {}
    for one in assignments(text):
        for key in (one.key[:3], one.key[:5]):
            is_group = key[:3] == ("tool", "poetry", "group") and key[4:] == ("dependencies",)
            if len(one.key) > len(key) and (key == _MAIN or is_group):
                tables.setdefault(key, []).append(one)
    for key, lines in tables.items():
        yield PoetryTable(file, text, key, [line for line in lines if len(line.key) == len(key) + 1])


def _requirement(name: str, value: Any) -> str:
    """`name[extras]`, and the rest of what an entry says."""
    rest = dict(value) if isinstance(value, dict) else {"version": value}
    extras = ",".join(rest.pop("extras", []))
    if rest == {"version": "*"}:
        rest = {}
    return f"{name}{f'[{extras}]' if extras else ''}{f' {json.dumps(rest)}' if rest else ''}"
