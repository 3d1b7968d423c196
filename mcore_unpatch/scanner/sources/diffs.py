"""Diffs, as git, diff and quilt write them: each file, its hunks, and what definitions their lines stand in."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mcore_unpatch.records import dataclass, field, record, replace

_HEAD = re.compile(rb"(?:diff --(?P<git>git)|diff --(?:cc|combined)|Index:) ([^\r\n]{1,8192})")
_SIDE = re.compile(rb"(---|\+\+\+) ([^\t\r\n]{1,4096})")
_MOVED = re.compile(rb"(?:rename|copy) (from|to) ([^\r\n]{1,4096})")
_HUNK = re.compile(rb"@@ -\d{1,9}(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@ ?(.*)")
_DEFINED = re.compile(r"( *)(?:async )?(class|def) (\w+)")
_NOWHERE = "/dev/null"
# `"a/f\\303\\251.py"`: how git writes a name with other than plain letters.
_QUOTED = re.compile(rb'"((?:[^"\\]|\\.){0,4096})"')
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)")
_LETTERS = {b"t": b"\t", b"n": b"\n", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


@record
class Around:
    """The class and the function that a line stands in, and how far the heads of both are indented."""

    cls: str = ""
    function: str = ""
    indent: int = 0
    cls_indent: int = 0
    outer: Around | None = None  # of a class within a class

    @property
    def name(self) -> str:
        """`Class.method`, `function`, `Class`, or nothing at the level of the module."""
        return ".".join(filter(None, (self.cls, self.function)))

    def after(self, line: str) -> Around:
        """What the next line stands in."""
        match = _DEFINED.match(line)
        indent = len(line) - len(line.lstrip())
        ends = bool(line.strip()) and line.lstrip()[0] not in "#)]}@\"'"
        if ends and self.outer is not None and indent <= self.cls_indent:
            return self.outer.after(line)
        if match is None:
            if ends and (not indent or (self.cls and indent <= self.cls_indent)):
                return Around()
            return replace(self, function="") if ends and self.cls and self.function and indent <= self.indent else self
        if self.function and indent > self.indent:
            return self  # within a function
        if match[2] == "class":
            outer = replace(self, function="") if self.cls and indent > self.cls_indent else None
            return Around(f"{outer.cls}.{match[3]}" if outer is not None else match[3], "", 0, indent, outer)
        owner = self if indent > self.cls_indent else Around()
        return replace(owner, function=match[3], indent=indent)


@dataclass(slots=True)
class FileDiff:
    """What a diff does to one file: `old` or `new` is empty where the file is added or taken away."""

    line: int
    old: str
    new: str
    text: list[bytes] = field(default_factory=list)
    changes: list[tuple[int, str]] = field(default_factory=list)  # the line of a hunk, and a definition it changes

    @property
    def path(self) -> str:
        """The file's name afterwards, or before where it is taken away."""
        return self.new or self.old


def read(data: bytes) -> list[FileDiff]:
    """Each file of a diff, in order."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") and b"\0" in data:  # as PowerShell writes what git prints
        data = data.decode("utf-16", errors="replace").encode()
    return list(_files(data.removeprefix(b"\xef\xbb\xbf").split(b"\n")))


def _files(lines: list[bytes]) -> Iterator[FileDiff]:
    file: FileDiff | None = None
    sided = False  # its `---` or `+++` was read
    number = 0
    while number < len(lines):
        raw = lines[number]
        number += 1
        head, side = _HEAD.match(raw), _SIDE.match(raw)
        if head or (side and (file is None or file.changes or (sided and side[1] == b"---"))):
            if file is not None:
                yield file
            file, sided = FileDiff(number, *(_both(head) if head else [""] * 2)), False
        if file is None:
            continue
        file.text.append(raw)
        if side:
            sided = True
            setattr(file, "old" if side[1] == b"---" else "new", _name(side[2]))
        elif moved := _MOVED.match(raw):
            setattr(file, "old" if moved[1] == b"from" else "new", _name(moved[2]))
        elif raw.startswith((b"new file mode", b"deleted file mode")) and not file.changes:
            file.old, file.new = ("", file.path) if raw.startswith(b"new") else (file.path, "")
        elif hunk := _HUNK.match(raw):
            number = _hunk(file, lines, number, hunk)
    if file is not None:
        yield file


def _hunk(file: FileDiff, lines: list[bytes], number: int, head: re.Match[bytes]) -> int:
    """Take the lines of a hunk; the number of the last one."""
    first, old, new = number, int(head[1] or 1), int(head[2] or 1)
    around = Around().after(head[3].decode(errors="replace"))
    names: dict[str, None] = {}
    while number < len(lines):
        mark = lines[number][:1]
        if mark != b"\\":
            if not (old > 0 or new > 0) or mark not in (b" ", b"-", b"+", b"", b"\r"):
                break
            old, new = old - (mark != b"+"), new - (mark != b"-")
            line = lines[number][1:].decode(errors="replace").rstrip("\r")
            around = around.after(line)
            if mark in (b"-", b"+") and line.strip() and not line.lstrip().startswith("#"):
                names[around.name] = None
        file.text.append(lines[number])
        number += 1
    file.changes += [(first, name) for name in names or {"": None}]
    return number


def _both(head: re.Match[bytes]) -> tuple[str, str]:
    """The names of a file before and after, as the first line of its diff has them: spaces are not marked."""
    names = head[2].strip()
    if not head["git"]:
        return _name(names), _name(names)
    if quoted := _QUOTED.match(names):
        return _name(quoted[0]), _name(names[quoted.end() :])
    for space in (at for at, letter in enumerate(names) if letter == ord(" ")):
        old, new = _name(names[:space]), _name(names[space:])
        if old == new:
            return old, new
    first, _, second = names.rpartition(b" ")
    return _name(first), _name(second)


def _name(raw: bytes) -> str:
    raw = raw.strip()
    if quoted := _QUOTED.fullmatch(raw):
        raw = _ESCAPE.sub(
            lambda one: bytes([int(one[1], 8) & 255]) if len(one[1]) == 3 else _LETTERS.get(one[1], one[1]), quoted[1]
        )
    elif b"/" not in raw:
        raw = raw.replace(b"\\", b"/")
    name = raw.decode(errors="replace").strip('"')
    return "" if name == _NOWHERE else name.removeprefix("a/") if name.startswith("a/") else name.removeprefix("b/")
