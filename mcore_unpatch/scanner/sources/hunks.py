"""Diffs, as git, diff and quilt write them: the hunks of each file, and what definitions their lines stand in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

_GIT = re.compile(rb"diff --git .{0,4096}? b/(\S{1,4096})|diff --(?:cc|combined) (\S{1,4096})|Index: (\S{1,4096})")
_SIDE = re.compile(rb"(---|\+\+\+) ([^\t\r\n]{1,4096})")
_MOVED = re.compile(rb"(rename|copy) (from|to) ([^\r\n]{1,4096})")
_BLOBS = re.compile(rb"index ([0-9a-f]{7,64})\.\.([0-9a-f]{7,64})\b")
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@ ?(.*)")
_COMBINED = re.compile(r"@@(@{1,8}) (?:-\d{1,9}(?:,\d{1,9})? ){2,9}\+(\d{1,9})(?:,(\d{1,9}))? @@@+ ?(.*)")
DEFINITION = re.compile(r"( *)(?:async )?(class|def) (\w+)")
_NOWHERE = "/dev/null"


@dataclass(frozen=True, slots=True)
class Place:
    """The class and the function that a line stands in, and how far the heads of both are indented."""

    cls: str = ""
    function: str = ""
    indent: int = 0
    cls_indent: int = 0

    @property
    def name(self) -> str:
        """`Class.method`, `function`, `Class`, or nothing at the level of the module."""
        return ".".join(filter(None, (self.cls, self.function)))

    def after(self, line: str) -> Place:
        """The place that a line of the file leads to."""
        found = DEFINITION.match(line)
        indent = len(line) - len(line.lstrip())
        if found is None:
            ends = line.strip() and line.lstrip()[0] not in "#)]}@\"'"
            if ends and (not indent or (self.cls and indent <= self.cls_indent)):
                return Place()
            return replace(self, function="") if ends and self.cls and self.function and indent <= self.indent else self
        if self.function and indent > self.indent:
            return self  # within a function
        if found[2] == "class":
            return Place(found[3], cls_indent=indent)
        owner = self if indent > self.cls_indent else Place()
        return replace(owner, function=found[3], indent=indent)


@dataclass(slots=True)
class Hunk:
    """One hunk: the line of its header in the patch, where in the file it is, and its lines with their marks."""

    line: int
    start: int = 0
    new_start: int = 0
    section: str = ""
    combined: bool = False
    lines: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)  # of its lines in the patch
    unended: str = ""  # the marks of the sides whose last line has no line end

    def side(self, mark: str) -> list[str]:
        """The lines before (`-`) or after (`+`) the change, those around included."""
        return [line[1:] for line in self.lines if line[:1] in (" ", mark, "")]

    @property
    def ends_in_a_change(self) -> bool:
        """Whether no line stands below what it changes."""
        return bool(self.lines) and bool(self.lines[-1][:1].strip())

    @property
    def first(self) -> Place:
        """The place its header tells."""
        return Place().after(self.section)

    def places(self, place: Place) -> list[Place]:
        """Where each of its lines stands, if what is above the first stands in `place`."""
        found = []
        added = place
        for line in self.lines:
            if line[:1] == "+":
                added = added.after(line[1:])
            else:
                place = added = place.after(line[1:])
            found.append(added)
        return found

    def entangled(self, place: Place) -> set[str]:
        """What lines around the change stand in before or after it, where that is not the same."""
        old = new = place
        found: set[str] = set()
        for line in self.lines:
            old = old if line[:1] == "+" else old.after(line[1:])
            new = new if line[:1] == "-" else new.after(line[1:])
            if not line[:1].strip() and line.strip() and old.name != new.name:
                found |= {old.name, new.name, old.cls, new.cls}
        return found


@dataclass(slots=True)
class FileDiff:
    """What a diff does to one file: `old` or `new` is empty where the file is added or taken away."""

    line: int
    old: str
    new: str
    binary: bool = False
    copied: bool = False
    blobs: tuple[str, str] = ("", "")  # git's names of the content before and after
    hunks: list[Hunk] = field(default_factory=list)

    @property
    def path(self) -> str:
        """The file's name afterwards, or before where it is taken away."""
        return self.new or self.old


def read(data: bytes) -> list[FileDiff]:
    """Each file of a diff, in order."""
    return list(_files(data.split(b"\n")))


def _files(lines: list[bytes]) -> Iterator[FileDiff]:
    file: FileDiff | None = None
    sided = False  # its `---` or `+++` was read
    number = 0
    while number < len(lines):
        raw = lines[number]
        number += 1
        if match := _GIT.match(raw):
            if file is not None:
                yield file
            name = _name(match[1] or match[2] or match[3])
            file, sided = FileDiff(number, name, name), False
        elif match := _SIDE.match(raw):
            name, is_old = _name(match[2]), match[1] == b"---"
            if file is None or file.hunks or (sided and is_old):
                if file is not None:
                    yield file
                file, sided = FileDiff(number, name, name), False
            sided = True
            if is_old:
                file.old = name
            else:
                file.new = name
                file.old = file.old if file.old or not name else name
                _none(file, lines[number - 2], raw)
        elif file is not None:
            number = _within(file, raw, lines, number)
    if file is not None:
        yield file


def _none(file: FileDiff, before: bytes, after: bytes) -> None:
    """`/dev/null` on one side: there is no such file before, or none afterwards."""
    if before.startswith(b"--- /dev/null"):
        file.old = ""
    if after.startswith(b"+++ /dev/null"):
        file.new = ""


def _within(file: FileDiff, raw: bytes, lines: list[bytes], number: int) -> int:
    """Take a line below the header of a file; the number of the last line that was read."""
    if raw.startswith((b"new file mode", b"deleted file mode")) and not file.hunks:
        file.old, file.new = ("", file.path) if raw.startswith(b"new") else (file.path, "")
    elif raw.startswith((b"Binary files ", b"GIT binary patch")):
        file.binary = True
    elif match := _MOVED.match(raw):
        file.copied = match[1] == b"copy"
        setattr(file, "old" if match[2] == b"from" else "new", _name(match[3]))
    elif match := _BLOBS.match(raw):
        file.blobs = match[1].decode(), match[2].decode()
    elif raw.startswith(b"@@"):
        text = raw.decode(errors="replace").rstrip("\r")
        if found := _HUNK.match(text):
            hunk = Hunk(number, int(found[1]), int(found[3]), found[5])
            file.hunks.append(hunk)
            return _lines(hunk, lines, number, int(found[2] or 1), int(found[4] or 1))
        if found := _COMBINED.match(text):
            hunk = Hunk(number, 0, int(found[2]), found[4], combined=True)
            file.hunks.append(hunk)
            return _combined(hunk, lines, number, len(found[1]) + 1, int(found[3] or 1))
    return number


def _lines(hunk: Hunk, lines: list[bytes], number: int, old: int, new: int) -> int:
    while number < len(lines):
        raw = lines[number]
        mark = raw[:1]
        if mark == b"\\" and hunk.lines:
            hunk.unended += hunk.lines[-1][:1].strip() or "+-"
        elif (old > 0 or new > 0) and mark in (b" ", b"-", b"+", b"", b"\r"):
            old, new = old - (mark != b"+"), new - (mark != b"-")
            hunk.lines.append(raw.decode(errors="replace").rstrip("\r"))
            hunk.numbers.append(number + 1)
        else:
            break
        number += 1
    return number


def _combined(hunk: Hunk, lines: list[bytes], number: int, parents: int, new: int) -> int:
    """A diff against several parents: what is not in all of them is added, what is in one of them alone taken away."""
    while number < len(lines):
        marks, text = lines[number][:parents], lines[number][parents:]
        if marks.strip(b"+- \r") or (new <= 0 and b"-" not in marks):
            break
        mark = "-" if b"-" in marks else "+" if b"+" in marks else " "
        new -= mark != "-"
        hunk.lines.append(mark + text.decode(errors="replace").rstrip("\r"))
        hunk.numbers.append(number + 1)
        number += 1
    return number


def _name(raw: bytes) -> str:
    name = raw.decode(errors="replace").strip().strip('"')
    return "" if name == _NOWHERE else name.removeprefix("a/") if name.startswith("a/") else name.removeprefix("b/")
