"""What a migration consists of: edits of bytes, remarks for people, and the plan that holds both.

`mcore_unpatch.codemods.planner` makes a `Plan`; `mcore_unpatch.migrate` verifies, shows and writes it.

    plan(project: Repository, findings: Sequence[Finding], options: Options) -> Plan

- A plan is a pure function of the bytes of the project and of the options: run again over its own result, it has
  no edit. It writes nothing.
- The edits of one file never overlap.
- Nothing outside an edit changes, so line endings, a byte order mark or an encoding cookie survive unless edited.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple, TypeVar, cast
from weakref import WeakValueDictionary

from mcore_unpatch.editing.source import Source
from mcore_unpatch.errors import FileError
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.findings.rules import Selection
from mcore_unpatch.megatron.layout import HOOK_SINCE
from mcore_unpatch.megatron.versions import NEWEST, Version, show
from mcore_unpatch.records import field, record
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.scanner.sources.files import Reader
from mcore_unpatch.scanner.sources.parsed import Parsed, RecentValues
from mcore_unpatch.scanner.sources.parsing import Unreadable

T = TypeVar("T")
_KEPT_BYTES = 500_000  # of files that nobody holds any more; their trees take some fifty times of that
# `exact`: the same bits for every caller. `rounding`: the same mathematics for every caller. `behaviour`: it depends on
# callers that were not seen, or changes something on purpose: made where it mends an error, or when asked for.
Level = Literal["exact", "rounding", "behaviour"]
LEVELS: tuple[Level, ...] = ("exact", "rounding", "behaviour")

# `left`: not migrated, and why. `by-hand`: steps a person has to take. `guard`: code that is no longer needed.
# `numerics`: results may change here. `differs`: a function that differs from upstream, with the difference as detail.
RemarkKind = Literal["left", "by-hand", "guard", "numerics", "differs"]


class as_name(NamedTuple):  # noqa: N801 - reads as a function
    """What finds a name and no longer one; that a file does not have it at all is seen ten times as fast."""

    name: str

    def search(self, data: bytes) -> object:
        """Where it stands."""
        word = self.name.encode()
        return word in data and re.search(rb"%b(?<!\w%b)\b" % (2 * (re.escape(word),)), data)


Word = str | re.Pattern[bytes] | as_name


class Repository(Project):
    """A project that can list its files: all `paths` (posix, relative) are read, those in `editable` may be edited."""

    def __init__(
        self,
        paths: Sequence[str],
        exists: Callable[[str], bool],
        read: Reader,
        editable: Iterable[str] | None = None,
        parsed: Parsed | None = None,
    ) -> None:
        super().__init__(exists, read, parsed)
        self.paths = tuple(paths)
        self.editable = frozenset(paths if editable is None else editable)
        # A parsed file is one and the same for as long as somebody holds it; the last ones are kept beyond that.
        self.sources, self.last = WeakValueDictionary[str, Source](), RecentValues[Source](_KEPT_BYTES)
        self.looks: dict[Any, Any] = {}  # what a look at all files gave: those that say a word, and what else was asked

    def close(self) -> None:
        """Let go of all files, and of what was found in them."""
        super().close()
        self.last.clear()
        self.looks.clear()

    def source(self, path: str) -> Source:
        """A parsed file, to be held as long as its nodes matter; raises `Unreadable` and `OSError`."""
        if (source := self.sources.get(path)) is None:
            source = self.sources[path] = Source(path, self.data(path), self.parsed)
        return self.last.get(path) or self.last.keep(path, source, len(source.data))

    def readable(self, path: str) -> Source | None:
        """A parsed file, if it is Python that can be parsed."""
        with suppress(Unreadable, OSError):
            return self.source(path) if path.endswith(".py") else None
        return None

    def sources_saying(self, word: Word, *, tests: bool = True) -> Iterator[Source]:
        """The Python files that say a word, or what a pattern finds, and can be read, parsed."""
        return filter(None, (self.readable(path) for path in self.saying(word) if tests or not is_test(path)))

    def look_for(self, *words: Word) -> None:
        """Find the files that say some words, all of them in one look at every file: they will be asked for."""
        new = [word for word in dict.fromkeys(words) if word not in self.looks]
        self.looks.update((word, []) for word in new)
        for path in self.paths if new else ():
            with suppress(Unreadable, OSError):
                data = self.data(path)
                for word in new:
                    if word.encode() in data if isinstance(word, str) else word.search(data):
                        self.looks[word].append(path)

    def saying(self, word: Word) -> list[str]:
        """The files that say a word, or what a pattern finds."""
        self.look_for(word)
        return cast("list[str]", self.looks[word])

    def once(self, ask: Callable[[Any], T]) -> T:
        """What a look at all files gives, for all who share them."""
        if ask not in self.looks:
            self.looks[ask] = ask(self)
        return cast("T", self.looks[ask])

    def sources_naming(self, name: str) -> Iterator[Source]:
        """The Python files that say a name, parsed; raises `Unreadable` for one that may need it and cannot be read."""
        return (self.source(path) for path in self.saying(as_name(name)) if path.endswith(".py"))

    def named_elsewhere(self, name: str, path: str) -> bool:
        """Whether another file than that at `path` says a name."""
        return any(other != path for other in self.saying(as_name(name)))

    def _data(self, path: str) -> bytes:
        """The bytes of a file as they are on disk, line endings included: edits count in these."""
        return self.read(path)


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
    # Whether all Megatrons of a file have the hook, and its project asks for the package: then no guard is needed.
    plain: Callable[[str], bool] = _none
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

    def guessed(self, path: str) -> str:
        """Why nothing is deleted for the releases that a file is judged for: a guess; nothing where they are named."""
        unknown = "which Megatron runs here is not known: name it in a project file, or with --target-mcore"
        return self.unsure(path) if self.pinned(path) else unknown

    def without_hook(self, path: str) -> str:
        """Why a file may not import what needs the hook: a release that it runs on, or that its project allows."""
        oldest = max(min(self.pinned(path), default=HOOK_SINCE), self.floor(path))
        allowed = f"it needs megatron-core>={show(HOOK_SINCE)}, and the project allows {show(oldest)} too"
        return self.older(path) or (allowed if oldest < HOOK_SINCE else "")

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
class Remark:
    """Something a person should know about one place."""

    path: str
    line: int
    rule: str
    kind: RemarkKind
    text: str
    detail: str = ""  # e.g. a unified diff that a reviewer can judge


@record
class Plan:
    """Everything a migration would do, and what it leaves to people."""

    edits: tuple[Edit, ...] = ()
    remarks: tuple[Remark, ...] = ()
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
