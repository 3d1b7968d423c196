"""Add a line to a requirements file, every other byte kept."""

from __future__ import annotations

import re
from bisect import bisect_left

_REQUIREMENT = re.compile(r"[A-Za-z0-9]")


def with_line(text: str, requirement: str) -> str:
    """The text with one more requirement: in its order if it has one, else after the last one."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    known = [index for index, line in enumerate(lines) if _REQUIREMENT.match(line)]
    keys = [lines[index].strip().casefold() for index in known]
    if len(keys) > 1 and keys == sorted(keys):
        position = bisect_left(keys, requirement.casefold())
        if position < len(known):
            return "".join((*lines[: known[position]], requirement + newline, *lines[known[position] :]))
    after = known[-1] + 1 if known else len(lines)
    if after == len(lines):
        missing = bool(lines) and not lines[-1].endswith("\n")
        return f"{text}{newline}{requirement}" if missing else f"{text}{requirement}{newline}"
    return "".join((*lines[:after], requirement + newline, *lines[after:]))
