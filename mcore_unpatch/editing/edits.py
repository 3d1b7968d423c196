"""What a migration consists of: edits of bytes, the reasons why places are left, and the plan that holds both.

`mcore_unpatch.codemods.planner` makes a `Plan`; `mcore_unpatch.migrate` verifies, shows and writes it.

- A plan is a pure function of the bytes of the repository and of the options: run again over its own result, it has
  no edit. It writes nothing.
- The edits of one file never overlap, and nothing outside an edit changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Literal

from mcore_unpatch.code.index import Index
from mcore_unpatch.code.names import Names
from mcore_unpatch.editing.refusals import Left, Refusal
from mcore_unpatch.editing.source import Source
from mcore_unpatch.errors import FileError
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.findings.rules import Selection
from mcore_unpatch.megatron.layout import HOOK_SINCE
from mcore_unpatch.megatron.megatrons import Megatrons
from mcore_unpatch.megatron.versions import NEWEST, Version, show
from mcore_unpatch.records import field, record
from mcore_unpatch.sources.parsing import MAX_BYTES, Reader, Unreadable, with_plain_line_ends

# `exact`: the same bits for every caller. `rounding`: the same mathematics for every caller. `behaviour`: it depends on
# callers that were not seen, or changes something on purpose: made where it mends an error, or when asked for.
Level = Literal["exact", "rounding", "behaviour"]
LEVELS: tuple[Level, ...] = ("exact", "rounding", "behaviour")


class Repository:
    """The files of a repository: all `paths` (posix, relative) are read, those in `editable` may be edited."""

    def __init__(
        self,
        paths: Sequence[str],
        exists: Callable[[str], bool],
        read: Reader,
        editable: Iterable[str] | None = None,
        names: Callable[[], Names] | None = None,
    ) -> None:
        """`names`: those of the same contents, where somebody has them."""
        self.exists, self.read = exists, read
        self.paths = tuple(paths)
        self.editable = frozenset(paths if editable is None else editable)
        self.known: dict[Any, Any] = {}  # what was decided, for all who plan with the same files
        self._sources: dict[str, Source] = {}
        self._names = names

    @cached_property
    def names(self) -> Names:
        """What the names of all files are."""
        if self._names is not None:
            return self._names()
        every = {path: self.text(path) for path in self.paths}
        texts = {path: with_plain_line_ends(data) for path, data in every.items() if 0 < len(data) <= MAX_BYTES}
        return Names(Index(texts), Megatrons().library)

    def source(self, path: str) -> Source:
        """A parsed file; raises `Unreadable` and `OSError`."""
        if path not in self._sources:
            index = self.names.index
            module = index.module(path) if path in index.sources else None
            self._sources[path] = Source(path, self.data(path), module)
        return self._sources[path]

    def readable(self, path: str) -> Source | None:
        """A parsed file, if it is Python that can be parsed."""
        with suppress(Unreadable, OSError):
            return self.source(path) if path.endswith(".py") else None
        return None

    def naming(self, name: str) -> list[str]:
        """The Python files that say a name."""
        word = re.compile(rb"\b%b\b" % re.escape(name.encode()))
        index = self.names.index
        return [path for path in index.saying(name) if word.search(index.sources[path])]

    def sources_naming(self, name: str) -> Iterator[Source]:
        """The Python files that say a name, parsed."""
        return filter(None, map(self.readable, self.naming(name)))

    def data(self, path: str) -> bytes:
        """The bytes of a file as they are on disk, line endings included: edits count in these."""
        return self.read(path)

    def text(self, path: str) -> bytes:
        """The same; none of a file that cannot be read, which the scan tells."""
        try:
            return self.read(path)
        except (OSError, Unreadable):
            return b""


def _none(_: str) -> Any:
    """Nothing of note about a file; a function with a name, because results of a migration are pickled."""
    return ""


def _any(_: str) -> Version:
    """Every release."""
    return (0,)


@record
class Options:
    """What a migration may do."""

    unsafe_fixes: bool = False
    selection: Selection = field(default_factory=Selection)
    target: Version = NEWEST
    # The oldest and the newest release that the project of a file asks for; none where it names no release.
    pinned: Callable[[str], tuple[Version, ...]] = _none
    # Which Megatron that a file runs on is not known, and how to settle it; nothing where all are.
    unsure: Callable[[str], str] = _none
    # Why a file may not have what needs the hook: the release that it is for, and who says so; nothing where it may.
    older: Callable[[str], str] = _none
    exact: bool = False  # only edits that keep every bit
    floor: Callable[[str], Version] = _any  # the oldest release on which a file can be imported at all
    naming: Callable[[str], Sequence[str]] | None = None  # all files that say a word

    def applies(self, level: Level, mends: bool = False) -> bool:
        """Whether edits of a level are to be made, or such as mend an error of a Megatron in use."""
        if self.exact or level == "exact":
            return level == "exact"
        return self.unsafe_fixes or mends or level == "rounding"

    def live(self, path: str) -> tuple[Version, ...]:
        """The releases that a file meets: those it is judged for, on which it can be imported."""
        floor = self.floor(path)
        return tuple(version for version in self.judged(path) if version >= floor) or (floor,)

    def judged(self, path: str) -> tuple[Version, ...]:
        """The oldest and the newest release that a file is judged for."""
        return self.pinned(path) or (self.target,)

    def guessed(self, path: str) -> Left | None:
        """Why nothing is deleted for the releases that a file is judged for: a guess; nothing where they are named."""
        why = self.unsure(path)
        return None if self.pinned(path) and not why else Left(Refusal.UNKNOWN, why)

    def without_hook(self, path: str) -> Left | None:
        """Why a file may not import what needs the hook: a release that it runs on, or that its project allows."""
        oldest = max(min(self.pinned(path), default=HOOK_SINCE), self.floor(path))
        why = self.older(path) or (show(oldest) if oldest < HOOK_SINCE else "")
        return Left(Refusal.OLDER, why) if why else None

    def wants(self, rule: str) -> bool:
        """Whether a rule takes part."""
        return rule in self.selection


@record
class NewContent:
    """A file with its content before and after; the path is posix and relative to the top of the work tree."""

    path: str
    before: bytes
    after: bytes
    gone: bool = False  # there is no such file afterwards


@record
class Edit:
    """Bytes [start, end) of a file's original content, and what stands there instead."""

    path: str  # posix, relative to the root of the project
    rule: str
    level: Level
    start: int
    end: int
    replacement: bytes
    title: str  # one line for people
    notes: tuple[str, ...] = ()  # e.g. what is not numerically neutral here
    finding_line: int = 0  # of the finding that this and other edits answer together; 0 if it answers none
    gain: str = ""  # what a maintainer has of it, in a line
    group: str = ""  # edits that need each other
    deletes: bool = False  # the file goes as a whole

    @property
    def holds(self) -> bool:
        """Whether it asks at run time what is there, and so holds on every Megatron."""
        return b"except ImportError" in self.replacement


class Unsound(Exception):
    """Edits that must not be carried out: the files they are in, each with the reason."""

    def __init__(self, reasons: dict[str, str]) -> None:
        super().__init__(str(reasons))
        self.reasons = reasons


@record
class Plan:
    """Everything a migration would do, and what it leaves to people."""

    edits: tuple[Edit, ...] = ()
    left: dict[Finding, Left] = field(default_factory=dict)  # why places stay, where a codemod has a way
    errors: tuple[FileError, ...] = ()  # files that should have been looked into and could not be
    removes: tuple[Finding, ...] = ()  # the findings that are gone once the edits that apply are written
    requirement: str | None = None  # what the new code needs, "megatron-core>=0.18"
    dependency: str | None = None  # the line to add to the project's own dependencies, "mcore-unpatch[compat]"
    recipes: tuple[str, ...] = ()  # other ways for an edit: what each is, in one line, then its code


def splice(data: bytes, edits: Iterable[Edit]) -> bytes:
    """The content with the edits made; insertions at one place stay in the order given."""
    pieces: list[bytes] = []
    position = 0
    for edit in in_order(edits):
        if not position <= edit.start <= edit.end <= len(data):
            where = f"bytes {edit.start}-{edit.end} of {len(data)}"
            raise ValueError(f"{edit.path}: the edit of {edit.rule} at {where} overlaps another or is outside the file")
        pieces += (data[position : edit.start], edit.replacement)
        position = edit.end
    return b"".join((*pieces, data[position:]))


def in_order(edits: Iterable[Edit]) -> Sequence[Edit]:
    """Edits of one file by position."""
    return sorted(edits, key=lambda edit: (edit.start, edit.end))
