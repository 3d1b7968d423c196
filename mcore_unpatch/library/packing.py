"""Models of several versions in one file: a line for each name, with what changed from version to version.

Three streams, each read when it is first asked for: what names are, their bodies' digests, and how they are used.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property
from typing import Any, TypeVar

from mcore_unpatch.library.fact import Call, Fact
from mcore_unpatch.library.model import Library, Model, NameIndex, Usage

_FORMAT = b"unpatch models 2\n"
_VERSION_END, _FIELD, _USE = "\x1e", "\x1f", "\x1d"
_KINDS = {"function": "f", "class": "c", "value": "v", "import": "i", "attribute": "a", "module": "m"}
_LETTERS = {letter: kind for kind, letter in _KINDS.items()}
_GONE = "-"
_EVER_A_CLASS = re.compile(f"(?:^|{_VERSION_END})[0-9]+{_KINDS['class']}{_FIELD}")
T = TypeVar("T")


def pack(models: list[Model]) -> bytes:
    """The file for some models, oldest first; the same bytes for the same models."""
    library = models[0].library
    names, bodies, uses = [], [], []
    for name in sorted({name for model in models for name in model.facts}):
        known = _runs([model.facts.get(name) for model in models])
        names.append(f"{name}\t" + _VERSION_END.join(f"{number}{_head(fact)}" for number, fact in known))
        digests = (f"{fact.digest.hex()}{_FIELD}{fact.statements.hex()}" if fact else "" for _, fact in known)
        bodies.append(_VERSION_END.join(digests))
    for name in sorted({name for model in models for name in model._uses}):
        told = _runs([_USE.join(map(_used, model.uses(name))) for model in models])
        uses.append(f"{name}\t" + _VERSION_END.join(f"{number}{_FIELD}{text}" for number, text in told))
    head = "\t".join([library.distribution, *library.packages])
    labels = " ".join(model.label for model in models)
    streams = ("\n".join([head, labels, *names]), "\n".join(bodies), "\n".join(uses))
    packed = [zlib.compress(stream.encode(), 9) for stream in streams]
    return _FORMAT + b"".join(len(part).to_bytes(4) + part for part in packed)


class Atlas:
    """The content of a packed file: models by label, and questions across all of them."""

    def __init__(self, packed: bytes) -> None:
        if not packed.startswith(_FORMAT):
            raise ValueError("this is no file of models, or one of another version of this tool")
        self._packed: list[bytes] = []
        at = len(_FORMAT)
        while at < len(packed):
            end = at + 4 + int.from_bytes(packed[at : at + 4])
            self._packed.append(packed[at + 4 : end])
            at = end
        head, labels, *lines = zlib.decompress(self._packed[0]).decode().split("\n")
        distribution, *packages = head.split("\t")
        self.library = Library(distribution, tuple(packages))
        self.labels = tuple(labels.split())
        self.lines: dict[str, str] = dict(line.split("\t", 1) for line in lines)
        self._models: dict[str, Model] = {}
        self._entries: dict[str, list[tuple[int, Fact | None]]] = {}
        self._told = cache(self._read_uses)

    def model(self, label: str) -> Model:
        """The model of one version."""
        if label not in self._models:
            number = self.labels.index(label)
            facts = _OfVersion(lambda: self.lines, lambda name: self._fact(name, number))
            uses = _OfVersion(lambda: self.uses, lambda name: self._usages(name, number))
            self._models[label] = Model(self.library, label, facts, uses, lambda: self.names)
        return self._models[label]

    def union(self) -> Model:
        """All versions as one: each name as the newest has it that has it at all."""
        return Model(self.library, "any", _OfVersion(lambda: self.lines, self._fact), {}, lambda: self.names)

    def _fact(self, name: str, number: int | None = None) -> Fact | None:
        """What a name is in a version; without one, in the last that has it."""
        for since, one in reversed(self.entries(name)):
            if since <= number if number is not None else one is not None:
                return one
        return None

    def _usages(self, name: str, number: int) -> tuple[Usage, ...]:
        told = (text for since, text in reversed(self._told(name)) if since <= number)
        return _usages(next(told, ""))

    def _read_uses(self, name: str) -> list[tuple[int, str]]:
        """How a name is used, by the number of the first version that does so."""
        parts = (part.partition(_FIELD) for part in self.uses[name].split(_VERSION_END)) if name in self.uses else ()
        return [(int(since), text) for since, _, text in parts]

    def versions(self, name: str) -> list[tuple[str, Fact | None]]:
        """The facts a name has had: the first version with each, None where it was taken away."""
        return [(self.labels[number], fact) for number, fact in self.entries(name)]

    @cached_property
    def names(self) -> NameIndex:
        """All names, of whatever version."""
        may_be = (item for item in self.lines.items() if f"{_KINDS['class']}{_FIELD}" in item[1])
        return NameIndex(self.lines, [name for name, line in may_be if _EVER_A_CLASS.search(line)])

    def entries(self, name: str) -> list[tuple[int, Fact | None]]:
        """The same by the number of the version."""
        if name in self._entries or name not in self.lines:
            return self._entries.get(name, [])
        line, found = self.lines[name], self._entries.setdefault(name, [])
        for part, body in zip(line.split(_VERSION_END), self._bodies[name].split(_VERSION_END), strict=True):
            head, *rest = part.split(_FIELD)
            fact = None
            if head[-1] != _GONE:
                detail, traits = rest
                digest, _, statements = body.partition(_FIELD)
                words = tuple(traits.split(" ")) if traits else ()
                fact = Fact(_LETTERS[head[-1]], detail, words, bytes.fromhex(digest), bytes.fromhex(statements))
            found.append((int(head[:-1]), fact))
        return found

    @cached_property
    def _bodies(self) -> dict[str, str]:
        return dict(zip(self.lines, zlib.decompress(self._packed[1]).decode().split("\n"), strict=True))

    @cached_property
    def uses(self) -> dict[str, str]:
        """The line of each name that is used."""
        text = zlib.decompress(self._packed[2]).decode()
        return dict(line.split("\t", 1) for line in text.split("\n")) if text else {}

    def used_as(self, hows: str) -> list[str]:
        """The names that some version uses in one of some ways."""
        one = re.compile(f"[{_FIELD}{_USE}][{hows}]\\??\\|")
        return [name for name, line in self.uses.items() if one.search(line)]


class _OfVersion(Mapping[str, T]):
    """What one version says of names, each read when it is first asked for: of a name that it lacks, nothing."""

    def __init__(self, every: Callable[[], Iterable[str]], read: Callable[[str], T | None]) -> None:
        self._every, self._read = every, cache(read)

    def get(self, name: str, default: Any = None) -> Any:
        """What is said of a name: asked for so often that it is not left to an exception."""
        return self._read(name) or default

    def __getitem__(self, name: str) -> T:
        if not (said := self._read(name)):
            raise KeyError(name)
        return said

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._every() if self._read(name))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _runs(values: list[T]) -> list[tuple[int, T]]:
    """The values that differ from the one before, with their number; nothing before the first."""
    runs: list[tuple[int, T]] = []
    for number, value in enumerate(values):
        if (runs and runs[-1][1] != value) or (not runs and value):
            runs.append((number, value))
    return runs


def _head(fact: Fact | None) -> str:
    if fact is None:
        return _GONE
    return _FIELD.join([_KINDS[fact.kind], fact.detail, " ".join(fact.traits)])


def _used(usage: Usage) -> str:
    words = [usage.how + ("" if usage.sure else "?"), str(usage.users), usage.place]
    words += [] if usage.call is None else [str(usage.call)]
    return "|".join([*words, *filter(None, [usage.condition])])


@cache  # most are the same on several versions
def _usages(text: str) -> tuple[Usage, ...]:
    return tuple(map(_usage, text.split(_USE))) if text else ()


def _usage(text: str) -> Usage:
    how, users, place, *rest = text.split("|")
    call = Call.read(rest[0]) if rest else None
    return Usage(how[0], place, int(users), call, not how.endswith("?"), "".join(rest[1:]))
