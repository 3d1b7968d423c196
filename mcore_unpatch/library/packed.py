"""Versions of a library in one file: a line for each name, with what changed from version to version.

Three streams, each read when it is first asked for: what names are, their bodies' digests, and how they are used.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property
from typing import NamedTuple

from mcore_unpatch.library.facts import Definition, Entry, Heart, How, Use
from mcore_unpatch.library.names import Body, Listing, Namespace
from mcore_unpatch.library.signatures import Call

_FORMAT = b"unpatch models 4\n"
_VERSION_END, _FIELD, _USE = "\x1e", "\x1f", "\x1d"
BEST = 9 | lzma.PRESET_EXTREME
_GONE, _DIGITS = "-", "0123456789"
Lines = dict[str, str]
Changes = tuple[dict[str, Body], Lines]  # heads and bodies, and uses


class Branch(NamedTuple):
    """A branch of a library as it was on a day, and the version that it says it is."""

    name: str
    version: str
    day: str
    commit: str


class Packed:
    """What every version says of names and their uses."""

    def __init__(
        self,
        heart: Heart,
        labels: tuple[str, ...] = (),
        lines: Lines | None = None,
        bodies: Callable[[], Lines] = dict,
        uses: Callable[[], Lines] = dict,
    ) -> None:
        self.heart, self.labels, self.lines = heart, labels, lines or {}
        self.listing = Listing(self.lines, lambda name: f"c{_FIELD}" in self.lines[name])
        self._read_bodies, self._read_uses = bodies, uses
        self.branches: dict[Branch, bytes] = {}
        self._entries: dict[str, list[Entry]] = {}
        self._names: dict[int | None, Namespace] = {}
        self.within = self.names().within

    @classmethod
    def read(cls, data: bytes, heart: Heart) -> Packed:
        """The content of a file; raises ValueError for another one."""
        if not data.startswith(_FORMAT):
            raise ValueError("this is no file of models, or one of another version of this tool")
        at, streams = len(_FORMAT), list[bytes]()
        while at < len(data):
            end = at + 4 + int.from_bytes(data[at : at + 4])
            streams.append(data[at + 4 : end])
            at = end
        head, *told = _text(streams[0]).split("\n")
        labels, *branches = head.split("\t")
        lines = dict(line.split("\t", 1) for line in told)

        def bodies() -> Lines:
            return dict(zip(lines, _text(streams[1]).split("\n"), strict=True))

        def uses() -> Lines:
            text = _text(streams[2])
            return dict(line.split("\t", 1) for line in text.split("\n")) if text else {}

        packed = cls(heart, tuple(labels.split()), lines, bodies, uses)
        packed.branches = {Branch(*one.split()): stream for one, stream in zip(branches, streams[3:], strict=True)}
        return packed

    def to_bytes(self, effort: int = 0) -> bytes:
        """The file; the same for the same versions. With more effort it is smaller, and takes seconds."""
        names = sorted(self.lines)
        head = "\t".join([" ".join(self.labels), *map(" ".join, self.branches)])
        streams = [
            [head, *(f"{name}\t{self.lines[name]}" for name in names)],
            [self.bodies[name] for name in names],
            [f"{name}\t{line}" for name, line in sorted(self.uses.items())],
        ]
        packed = [*(_compressed("\n".join(stream), effort) for stream in streams), *self.branches.values()]
        return _FORMAT + b"".join(len(one).to_bytes(4) + one for one in packed)

    @classmethod
    def of(cls, heart: Heart, label: str, facts: Iterable[Definition], uses: Mapping[str, Iterable[Use]]) -> Packed:
        """One version."""
        lines, bodies = {}, {}
        for one in facts:
            lines[one.name], bodies[one.name] = f"0{_head(one.entry)}", f"{one.digest}{_FIELD}{one.statements}"
        used = {name: f"0{_FIELD}{_USE.join(map(_used, some))}" for name, some in uses.items() if some}
        return cls(heart, (label,), lines, lambda: bodies, lambda: used)

    def plus(self, other: Packed, label: str = "") -> Packed:
        """These versions with the one that another file has behind them."""
        return self._changed(label or other.labels[0], self._changes(other))

    def _changes(self, other: Packed) -> Changes:
        """What the version of another file says that the last one does not say."""
        names, uses = {}, {}
        for name in {**self.lines, **other.lines}:
            now = other.lines.get(name, _GONE).lstrip(_DIGITS), other.bodies.get(name, "")
            then = (
                one.get(name, empty).split(_VERSION_END)[-1] for one, empty in ((self.lines, _GONE), (self.bodies, ""))
            )
            if (next(then).lstrip(_DIGITS), next(then)) != now:
                names[name] = now
        for name in {**self.uses, **other.uses}:
            text = other.uses.get(name, "").partition(_FIELD)[2]
            if self.uses.get(name, "").split(_VERSION_END)[-1].partition(_FIELD)[2] != text:
                uses[name] = text
        return names, uses

    def _changed(self, label: str, changes: Changes) -> Packed:
        number, (names, told) = len(self.labels), changes
        lines, bodies, uses = dict(self.lines), dict(self.bodies), dict(self.uses)
        for name, (head, body) in names.items():
            bodies[name] = f"{bodies[name]}{_VERSION_END}{body}" if name in bodies else body
            lines[name] = _VERSION_END.join(filter(None, [lines.get(name), f"{number}{head}"]))
        for name, text in told.items():
            uses[name] = _VERSION_END.join(filter(None, [uses.get(name), f"{number}{_FIELD}{text}"]))
        return Packed(self.heart, (*self.labels, label), lines, lambda: bodies, lambda: uses)

    def with_branch(self, branch: Branch, other: Packed) -> Packed:
        """These versions, and beside them a branch, which the file has as it differs from the last of them."""
        names, uses = self._changes(other)
        lines = [str(len(names)), *(f"{name}\t{head}\t{body}" for name, (head, body) in sorted(names.items()))]
        text = "\n".join([*lines, *(f"{name}\t{text}" for name, text in sorted(uses.items()))])
        kept = Packed(self.heart, self.labels, self.lines, lambda: self.bodies, lambda: self.uses)
        kept.branches = self.branches | {branch: _compressed(text, BEST)}
        return kept

    def branch(self, branch: Branch) -> Packed:
        """These versions with a branch behind them, as if it came last."""
        count, *lines = _text(self.branches[branch]).split("\n")
        parts = [line.split("\t", 2) for line in lines[: int(count)]]
        uses = dict(line.split("\t", 1) for line in lines[int(count) :])
        return self._changed(branch.version, ({name: (head, body) for name, head, body in parts}, uses))

    def alone(self, branch: Branch) -> Packed:
        """A branch without the versions, as its source would be read."""
        every = self.branch(branch)
        last = len(every.labels) - 1

        def newest(text: str) -> tuple[int, str]:
            parts = text.split(_VERSION_END)
            return len(parts) - 1, parts[-1].lstrip(_DIGITS)

        there = {name: newest(text) for name, text in every.lines.items()}
        there = {name: (at, head) for name, (at, head) in there.items() if head != _GONE}
        lines = {name: f"0{head}" for name, (_, head) in there.items()}
        bodies = {name: every.bodies[name].split(_VERSION_END)[at] for name, (at, _) in there.items()}
        uses = {name: f"0{text}" for name, told in every.uses.items() if (text := newest(told)[1]) != _FIELD}
        return Packed(self.heart, (every.labels[last],), lines, lambda: bodies, lambda: uses)

    def entries(self, name: str) -> list[Entry]:
        """What a name was, version by version where that changed."""
        if name not in self._entries:
            line = self.lines.get(name)
            self._entries[name] = [_entry(part) for part in line.split(_VERSION_END)] if line is not None else []
        return self._entries[name]

    def body(self, name: str, entry: Entry) -> Body:
        """The digests of what a name was since a version."""
        for one, text in zip(self.entries(name), self.bodies[name].split(_VERSION_END), strict=True):
            if one is entry:
                digest, _, statements = text.partition(_FIELD)
                return digest, statements
        return "", ""

    def names(self, number: int | None = None) -> Namespace:
        """The names of a version; without one all as one, each as the newest has it that has it at all."""
        if number not in self._names:
            self._names[number] = Namespace(self.heart, self.listing, lambda name: self._entry(name, number), self.body)
        return self._names[number]

    def _entry(self, name: str, number: int | None) -> Entry | None:
        for entry in reversed(self.entries(name)):
            if number is None:
                if entry.letter != _GONE:
                    return entry
            elif entry.since <= number:
                return entry if entry.letter != _GONE else None
        return None

    def used(self, name: str, number: int) -> tuple[Use, ...]:
        """How a version uses a name."""
        told = ""
        for part in self.uses[name].split(_VERSION_END) if name in self.uses else ():
            since, _, text = part.partition(_FIELD)
            told = text if int(since) <= number else told
        return _uses(told)

    @cached_property
    def bodies(self) -> Lines:
        """The digests of bodies, by name."""
        return self._read_bodies()

    @cached_property
    def uses(self) -> Lines:
        """The uses of each name that is used."""
        return self._read_uses()

    @cached_property
    def in_specs(self) -> list[str]:
        """The names that specs of some version have."""
        marks = [f"{before}{how}" for before in (_FIELD, _USE) for how in (How.NAMED, How.SLOT)]
        return [name for name, line in self.uses.items() if any(mark in line for mark in marks)]


def _compressed(text: str, effort: int) -> bytes:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": effort, "lc": 4, "lp": 0, "pb": 0}]
    return lzma.compress(text.encode(), filters=filters)


def _text(compressed: bytes) -> str:
    return lzma.decompress(compressed).decode()


def _head(entry: Entry) -> str:
    return _FIELD.join([entry.letter, entry.detail, " ".join(entry.traits)])


def _entry(part: str) -> Entry:
    head, *rest = part.split(_FIELD)
    if not rest:
        return Entry(int(head[:-1]), _GONE)
    detail, traits = rest
    return Entry(int(head[:-1]), head[-1], detail, tuple(traits.split(" ")) if traits else ())


def _used(use: Use) -> str:
    words = [use.how + ("" if use.sure else "?"), str(use.users), use.place]
    words += [] if use.call is None else [str(use.call)]
    return "|".join([*words, *filter(None, [use.condition])])


@cache  # most are the same on several versions
def _uses(text: str) -> tuple[Use, ...]:
    return tuple(map(_use, text.split(_USE))) if text else ()


def _use(text: str) -> Use:
    how, users, place, *rest = text.split("|")
    call = Call.read(rest[0]) if rest else None
    return Use(How(how[0]), place, call, not how.endswith("?"), "".join(rest[1:]), int(users))
