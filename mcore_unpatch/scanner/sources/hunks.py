"""Unified diffs: the hunks of each file, and what definitions their lines stand in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

_FILE = re.compile(rb"(?:diff --git .{0,4096}? b/(\S{1,4096})|(?:\+\+\+|---) (?:[ab]/)?([^\t\r\n]{1,4096}))")
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@ ?(.*)")
_DEFINITION = re.compile(r"( *)(?:async )?(class|def) (\w+)")
_NOWHERE = b"/dev/null"


@dataclass(frozen=True, slots=True)
class Place:
    """The class and the function that a line stands in, and how far the function's head is indented."""

    cls: str = ""
    function: str = ""
    indent: int = 0

    @property
    def name(self) -> str:
        """`Class.method`, `function`, `Class`, or nothing at the level of the module."""
        return ".".join(filter(None, (self.cls, self.function)))

    def after(self, line: str) -> Place:
        """The place that a line of the file leads to."""
        found = _DEFINITION.match(line)
        indent = len(line) - len(line.lstrip())
        if found is None:
            ends = line.strip() and line.lstrip()[0] not in "#)]}@\"'"
            if not indent and ends:
                return Place()
            return replace(self, function="") if ends and self.cls and self.function and indent <= self.indent else self
        if found[2] == "class":
            return Place(found[3]) if indent <= self.indent or not self.function else self
        if self.function and indent > self.indent:
            return self  # a function within a function
        return Place(self.cls if indent else "", found[3], indent)


@dataclass(slots=True)
class Hunk:
    """One hunk: the line of its header in the patch, the line of the file it is for, and its lines with their marks."""

    line: int
    start: int = 0
    section: str = ""
    lines: list[str] = field(default_factory=list)

    def side(self, mark: str) -> list[str]:
        """The lines before (`-`) or after (`+`) the change, those around included."""
        return [line[1:] for line in self.lines if line[:1] in (" ", mark, "")]

    @property
    def first(self) -> Place:
        """The place its header tells."""
        return Place().after(self.section)

    def changed(self, place: Place) -> dict[str, None]:
        """What it changes, where its first line stands in `place`; of a class that it adds, the class alone."""
        found: dict[str, None] = {}
        added, own = place, ""
        for line in self.lines:
            text = line[1:]
            if line[:1] == "+":
                added = added.after(text)
                own = added.cls if added.cls != place.cls else ""
                if text.strip():
                    found[own or added.name] = None
                continue
            place = added = place.after(text)
            if line[:1] == "-" and text.strip():
                found[place.name] = None
        return found


def read(data: bytes) -> Iterator[tuple[str, Hunk]]:
    """Each file of a diff with its hunks; one without any has one that is empty."""
    path, header, empty, left = "", 0, False, (0, 0)
    hunk = Hunk(0)
    for number, raw in enumerate(data.split(b"\n"), 1):
        if left > (0, 0) and raw[:1] in (b" ", b"-", b"+", b"\\", b"", b"\r"):
            old, new = left
            mark = raw[:1]
            left = (old - (mark in (b" ", b"-", b"", b"\r")), new - (mark in (b" ", b"+", b"", b"\r")))
            if mark != b"\\":
                hunk.lines.append(raw.decode(errors="replace").rstrip("\r"))
            left = (max(left[0], 0), max(left[1], 0))
            continue
        left = (0, 0)
        if (match := _FILE.match(raw)) and (match[1] or match[2]) != _NOWHERE:
            name = (match[1] or match[2]).decode(errors="replace").strip().strip('"')
            if empty and name != path:
                yield path, Hunk(header)
            path, header, empty = (name, number, True) if name != path or not empty else (path, header, True)
        elif path and (found := _HUNK.match(raw.decode(errors="replace").rstrip("\r"))):
            hunk, empty = Hunk(number, int(found[1]), found[5]), False
            left = (int(found[2] or 1), int(found[4] or 1))
            yield path, hunk  # its lines come in as the diff is read on
    if empty:
        yield path, Hunk(header)
