"""Requirements files: one requirement to a line."""

from __future__ import annotations

import re
from bisect import bisect_left
from pathlib import Path

from mcore_unpatch.migrate.dependencies.listing import Listing, plus_extra

_REQUIREMENT = re.compile(r"\s*[A-Za-z0-9]")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


class RequirementLines(Listing):
    """One such file."""

    def __init__(self, file: Path, text: str) -> None:
        lines = [match for match in re.finditer(r"[ \t]*([^\r\n]+)", text) if _REQUIREMENT.match(match[0])]
        self.spans = [match.span(1) for match in lines]
        super().__init__(file, text, [match[1] for match in lines], True)

    def meaning(self, text: str) -> tuple[list[str], object]:
        """The lines that name a package, and all others."""
        lines = text.splitlines()
        known = [line.lstrip(" \t") for line in lines if _REQUIREMENT.match(line)]
        return known, [line for line in lines if not _REQUIREMENT.match(line)]

    def with_extra(self, index: int, extra: str) -> str:
        """The line with the extra."""
        start, end = self.spans[index]
        return self.text[:start] + plus_extra(self.text[start:end], extra) + self.text[end:]

    def with_requirement(self, requirement: str) -> str:
        """In the order of the others if they have one, else after the last one; indented as they are."""
        return _with_line(self.text, requirement)


def _with_line(text: str, requirement: str) -> str:
    newline, indent = "\r\n" if "\r\n" in text else "\n", ""
    lines = _LINE.findall(text)
    known = [index for index, line in enumerate(lines) if _REQUIREMENT.match(line)]
    keys = [lines[index].strip().casefold() for index in known]
    if known:
        last = lines[known[-1]]
        indent = last[: len(last) - len(last.lstrip())]
    new = indent + requirement
    if len(keys) > 1 and keys == sorted(keys):
        position = bisect_left(keys, requirement.casefold())
        if position < len(known):
            return "".join((*lines[: known[position]], new + newline, *lines[known[position] :]))
    after = known[-1] + 1 if known else len(lines)
    if after == len(lines):
        missing = bool(lines) and not lines[-1].endswith("\n")
        return f"{text}{newline}{new}" if missing else f"{text}{new}{newline}"
    return "".join((*lines[:after], new + newline, *lines[after:]))
