"""Whether the hunks of a diff apply to a source, by the rules of `git apply`: not fuzzy, but lines may have moved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mcore_unpatch.scanner.sources.hunks import FileDiff, Hunk

APPLIES = "applies"
DONE = "done"
FAILS = "fails"
_END = "\\"  # behind the last line of a file that has no line end


@dataclass(frozen=True, slots=True)
class Fit:
    """How a hunk fits a source, and the line of the source above which its own begin."""

    word: str
    line: int | None = None


@dataclass(slots=True)
class Tree:
    """The files of a source as patches leave them; nothing is written."""

    folder: Path
    _files: dict[str, list[str] | None] = field(default_factory=dict)

    def apply(self, file: FileDiff, old: str, new: str) -> list[Fit]:
        """How each hunk fits; those that do are applied. `old` and `new` are the file's names in the source."""
        if file.binary or any(hunk.combined for hunk in file.hunks):
            return [Fit(FAILS if hunk.combined else "") for hunk in file.hunks]
        before = self._read(old) if old else None
        if not old:
            return self._add(file, new)
        if before is None:
            return [Fit(FAILS) for _ in file.hunks]
        lines = list(before)
        patched = [False] * len(lines)
        fits = [_fit(hunk, lines, patched) for hunk in file.hunks]
        if new != old:
            self._files[old] = before if file.copied else None
        if new:
            self._files[new] = lines
        return fits

    def _add(self, file: FileDiff, new: str) -> list[Fit]:
        there = self._read(new)
        if not file.hunks:
            return []
        wanted = _side(file.hunks[0], "+")
        if there is None:
            self._files[new] = wanted
            return [Fit(APPLIES) for _ in file.hunks]
        return [Fit(DONE if there == wanted else FAILS) for _ in file.hunks]

    def lines(self, name: str) -> list[str]:
        """The lines of a file as they are now."""
        return self._read(name) or []

    def _read(self, name: str) -> list[str] | None:
        if name not in self._files:
            path = self.folder / name
            text = path.read_bytes().decode(errors="replace") if path.is_file() else None
            self._files[name] = None if text is None else _split(text.replace("\r\n", "\n"))
        return self._files[name]


def _split(text: str) -> list[str]:
    lines = text.split("\n")
    if not lines[-1]:
        return lines[:-1]
    return [*lines[:-1], lines[-1] + _END]


def _side(hunk: Hunk, mark: str) -> list[str]:
    lines = hunk.side(mark)
    return [*lines[:-1], lines[-1] + _END] if mark in hunk.unended and lines else lines


def _fit(hunk: Hunk, lines: list[str], patched: list[bool]) -> Fit:
    """How one hunk fits; what is found is put in its place, and taken for no other."""
    old, new = _side(hunk, "-"), _side(hunk, "+")
    at = _position(hunk, old, lines, patched)
    if at is not None:
        lines[at : at + len(old)] = new
        patched[at : at + len(old)] = [True] * len(new)
        return Fit(APPLIES, at)
    there = _position(hunk, new, lines, [])
    return Fit(DONE, there) if there is not None else Fit(FAILS)


def _position(hunk: Hunk, wanted: list[str], lines: list[str], patched: list[bool]) -> int | None:
    """Where lines stand in a file: the place nearest to the expected one, and of two the lower, as git has it.

    A hunk for the first line is for the beginning of the file, one without lines below its change for the end.
    """
    last = len(lines) - len(wanted)
    first = last if hunk.ends_in_a_change else 0
    last = 0 if hunk.start <= 1 and last >= 0 else last
    expected = max(hunk.new_start - 1, 0)
    if not wanted:
        return min(range(max(first, 0), last + 1), key=lambda at: abs(at - expected), default=None)
    fitting = (
        at
        for at in _occurrences(wanted[0], lines, first, last)
        if lines[at : at + len(wanted)] == wanted and not any(patched[at : at + len(wanted)])
    )
    return min(fitting, key=lambda at: (abs(at - expected), -at), default=None)


def _occurrences(line: str, lines: list[str], first: int, last: int) -> Iterator[int]:
    """The places of a line, from `first` to `last`."""
    at = max(first, 0) - 1
    while True:
        try:
            at = lines.index(line, at + 1, last + 1)
        except ValueError:
            return
        yield at
