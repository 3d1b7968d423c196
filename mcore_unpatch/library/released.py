"""The releases of a library as they are packed, read for `code`: all of them as one, and each as it is.

A line for each name says what it is since which release; see `packing` for the format. Bodies are not read.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from mcore_unpatch.library.interface import Member, MemberKind, Symbol, SymbolKind

_FORMAT = b"unpatch models 2\n"
_VERSION_END, _FIELD = "\x1e", "\x1f"
_MOST_HOPS = 12
_LONGEST = 30  # parts of a name
_KINDS = {"m": SymbolKind.MODULE, "c": SymbolKind.CLASS, "f": SymbolKind.FUNCTION}
_OF_EVERY_CLASS = frozenset(dir(object))


class Entry(NamedTuple):
    """What a name is since a release: `letter` as it is packed, `-` where it is gone."""

    since: int
    letter: str
    detail: str = ""
    traits: tuple[str, ...] = ()

    def trait(self, name: str) -> str | None:
        """What stands behind `name:` among the traits; empty for a trait alone, None where it has none."""
        for word in self.traits:
            key, _, value = word.partition(":")
            if key == name:
                return value
        return None


class Found(NamedTuple):
    """A definition and the dotted name it stands under."""

    name: str
    entry: Entry


class Heart(NamedTuple):
    """What is known of a library by heart; see `megatron.parts`."""

    packages: tuple[str, ...]
    distribution: str
    versioned: tuple[str, ...]
    parts: Mapping[str, str]
    lists: Mapping[tuple[str, str], str]
    holds: Mapping[tuple[str, str], str]
    results: Mapping[str, str]
    outside: Mapping[str, frozenset[str]]
    whole: str
    module_class: str
    companions: tuple[str, ...] = ()  # packages that build its objects
    words: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()  # what wheels may lack, or have without a source
    unknown_before: tuple[str, tuple[int, ...]] = ("", ())  # a package that only checkouts had before a release


class Packed:
    """The names of every release."""

    def __init__(self, packed: bytes, heart: Heart) -> None:
        if not packed.startswith(_FORMAT):
            raise ValueError("this is no file of models, or one of another version of this tool")
        self.heart = heart
        at = len(_FORMAT)
        end = at + 4 + int.from_bytes(packed[at : at + 4])
        _, labels, *lines = zlib.decompress(packed[at + 4 : end]).decode().split("\n")
        self.labels = tuple(labels.split())
        self.lines: dict[str, str] = dict(line.split("\t", 1) for line in lines)
        self._entries: dict[str, list[Entry]] = {}
        self._snapshots: dict[int | None, Snapshot] = {}
        self._within = tuple(f"{package}." for package in heart.packages)

    def within(self, dotted: str) -> bool:
        """Whether a dotted name lies in the library."""
        return dotted.startswith(self._within) or dotted in self.heart.packages

    def entries(self, name: str) -> list[Entry]:
        """What a name was, release by release where that changed."""
        if name not in self._entries:
            line = self.lines.get(name)
            self._entries[name] = [_entry(part) for part in line.split(_VERSION_END)] if line is not None else []
        return self._entries[name]

    def snapshot(self, number: int | None = None) -> Snapshot:
        """The names of one release, or of all of them as one."""
        if number not in self._snapshots:
            self._snapshots[number] = Snapshot(self, number)
        return self._snapshots[number]

    @cached_property
    def by_owner(self) -> dict[str, list[str]]:
        """The names by what they stand in."""
        found: dict[str, list[str]] = {}
        for name in self.lines:
            found.setdefault(name.rpartition(".")[0], []).append(name)
        return found

    @cached_property
    def by_leaf(self) -> dict[str, list[str]]:
        """The names by their last part."""
        found: dict[str, list[str]] = {}
        for name in self.lines:
            found.setdefault(name.rpartition(".")[2], []).append(name)
        return found


def _entry(part: str) -> Entry:
    head, *rest = part.split(_FIELD)
    if not rest:
        return Entry(int(head[:-1]), "-")
    detail, traits = rest
    return Entry(int(head[:-1]), head[-1], detail, tuple(traits.split(" ")) if traits else ())


class Snapshot:
    """The names of one release, or of all: then each as the newest has it that has it at all."""

    def __init__(self, packed: Packed, number: int | None = None) -> None:
        self.packed, self._number = packed, number
        self._found: dict[str, Found | None] = {}
        self._lineages: dict[str, tuple[str, ...]] = {}

    def entry(self, name: str) -> Entry | None:
        """What a name is."""
        for entry in reversed(self.packed.entries(name)):
            if self._number is None:
                if entry.letter != "-":
                    return entry
            elif entry.since <= self._number:
                return entry if entry.letter != "-" else None
        return None

    def find(self, name: str, hops: int = 0) -> Found | None:
        """The definition behind a dotted name, through re-exports and base classes."""
        if name not in self._found:
            if hops > _MOST_HOPS or name.count(".") > _LONGEST:
                return None
            self._found[name] = self._find(name, hops)
        return self._found[name]

    def _find(self, name: str, hops: int) -> Found | None:
        entry = self.entry(name)
        if entry is not None:
            other = entry.detail if entry.letter == "i" else entry.trait("alias") if entry.letter == "v" else None
            if other and other != name and self.packed.within(other):
                return self.find(other, hops + 1) or (Found(name, entry) if entry.letter == "v" else None)
            return Found(name, entry)
        owner_name, _, leaf = name.rpartition(".")
        owner = self.find(owner_name, hops + 1) if self.packed.within(owner_name) else None
        if owner is None:
            return None
        if owner.name != owner_name:
            return self.find(f"{owner.name}.{leaf}", hops + 1)
        if owner.entry.letter == "c":
            for base in self.lineage(owner_name)[1:]:
                if (inherited := self.entry(f"{base}.{leaf}")) is not None:
                    return Found(f"{base}.{leaf}", inherited)
            return None
        star = self.entry(f"{owner_name}.*")
        return self.find(f"{star.detail.removesuffix('*')}{leaf}", hops + 1) if star else None

    def lineage(self, name: str) -> tuple[str, ...]:
        """A class and its bases, the nearest first."""
        if name not in self._lineages:
            self._lineages[name] = (name,)  # what a cycle gets to see
            found, entry = [name], self.entry(name)
            for text in entry.detail.split() if entry is not None and entry.letter == "c" else ():
                base = self.find(f"{name.rpartition('.')[0]}.{text}")
                if base is None:
                    found.append(text)
                else:
                    found += self.lineage(base.entry.detail if base.entry.letter == "i" else base.name)
            # A class that several bases share stands behind all of them, as in Python's own order.
            self._lineages[name] = tuple(dict.fromkeys(reversed(found)))[::-1]
        return self._lineages[name]

    def has(self, name: str) -> bool:
        """Whether a name is there, what classes inherit from outside and modules work out included."""
        if self.find(name) is not None:
            return True
        owner, _, leaf = name.rpartition(".")
        holder = self.find(owner) if self.packed.within(owner) else None
        if holder is None or holder.entry.letter != "c":
            if holder is not None and self.entry(f"{holder.name}.__getattr__") is not None:
                return True
            inside = self.packed.by_owner.get(name, ()) if holder is None else ()
            return any(self.entry(other) is not None for other in inside)  # a folder without an `__init__.py`
        return self.inherits(holder.name, leaf)

    def inherits(self, cls: str, name: str) -> bool:
        """Whether a class has a method from a base outside of the library."""
        outside = (base.rpartition(".")[2] for base in self.lineage(cls) if not self.packed.within(base))
        return any(name in self.packed.heart.outside.get(base, ()) for base in outside)

    def parameters(self, name: str) -> tuple[str, ...] | None:
        """The parameters of a function, or of the constructor of a class."""
        found = self.find(name)
        if found is not None and found.entry.letter == "c":
            found = self.find(f"{found.name}.__init__") or found
        if found is None:
            return None
        if found.entry.letter == "c":  # a dataclass
            fields = [one.trait("fields") or "" for base in self.lineage(found.name) if (one := self.entry(base))]
            words = [word.partition("=")[0] for text in reversed(fields) for word in text.split(",") if word]
            return ("self", *dict.fromkeys(words)) if words else None
        if found.entry.letter != "f":
            return None
        return tuple(word.partition("=")[0].strip("*") for word in found.entry.detail.split() if word not in "*/")


class AllReleases:
    """Every release as one library, as `library.interface.Library` asks it."""

    def __init__(self, packed: Packed) -> None:
        self._packed, self._all = packed, packed.snapshot()
        self._heart = packed.heart
        self._symbols: dict[str, Symbol | None] = {}
        self._members: dict[tuple[str, str], Member | None] = {}
        self.within = packed.within

    def symbol(self, dotted: str) -> Symbol | None:
        """The definition behind a dotted name."""
        if dotted not in self._symbols:
            self._symbols[dotted] = self._symbol(dotted) if self.within(dotted) else None
        return self._symbols[dotted]

    def _symbol(self, dotted: str) -> Symbol | None:
        found = self._all.find(dotted)
        if found is None:
            owner, _, leaf = dotted.rpartition(".")
            holder = self.symbol(owner)
            is_method = holder is not None and holder.kind == SymbolKind.CLASS and self.inherits(holder.name, leaf)
            return Symbol(SymbolKind.FUNCTION, f"{holder.name}.{leaf}") if holder is not None and is_method else None
        kind = _KINDS.get(found.entry.letter, SymbolKind.VALUE)
        if kind == SymbolKind.VALUE and found.entry.trait("state") is not None:
            kind = SymbolKind.STATE
        asked, _, leaf = dotted.rpartition(".")
        holder = self.symbol(asked) if kind == SymbolKind.FUNCTION else None
        if holder is not None and holder.kind == SymbolKind.CLASS:
            return Symbol(kind, f"{holder.name}.{leaf}")
        return Symbol(kind, found.name)

    def is_module(self, dotted: str) -> bool:
        """Whether a dotted name is one of its modules."""
        entry = self._all.entry(dotted)
        return entry is not None and entry.letter == "m"

    def is_class(self, dotted: str) -> bool:
        """Whether a dotted name is where one of its classes stands."""
        entry = self._all.entry(dotted) if self.within(dotted) else None
        return entry is not None and entry.letter == "c"

    def lineage(self, cls: str) -> Sequence[str]:
        """A class and its bases."""
        return self._all.lineage(cls)

    def own_member(self, cls: str, name: str) -> Member | None:
        """What a class itself has under a name."""
        key = (cls, name)
        if key not in self._members:
            self._members[key] = self._own_member(cls, name)
        return self._members[key]

    def _own_member(self, cls: str, name: str) -> Member | None:
        versions = [entry for entry in reversed(self._packed.entries(f"{cls}.{name}")) if entry.letter != "-"]
        if held := self._heart.holds.get((cls, name)) or self._heart.lists.get((cls, name)):
            return Member(MemberKind.ATTRIBUTE, cls, held, is_list=(cls, name) in self._heart.lists)
        if not versions:
            return None
        if versions[0].letter == "c":
            return Member(MemberKind.CLASS, cls, f"{cls}.{name}")
        held = self._class_of(
            next((held for one in versions if (held := one.trait("builds") or one.trait("type"))), "")
        )
        if versions[0].letter == "f":
            is_property = versions[0].trait("property") is not None
            return Member(MemberKind.PROPERTY if is_property else MemberKind.METHOD, cls, held)
        is_callable = any(entry.trait("callable") is not None for entry in versions)
        return Member(MemberKind.ATTRIBUTE, cls, held or self.part(name), is_callable)

    def _class_of(self, text: str) -> str:
        found = self._all.find(text) if text and self.within(text) else None
        return found.name if found is not None and found.entry.letter == "c" else ""

    def inherits(self, cls: str, name: str) -> bool:
        """Whether a class has a method from a base of another library."""
        return (name in _OF_EVERY_CLASS and self.is_class(cls)) or self._all.inherits(cls, name)

    def result(self, function: str) -> Sequence[str]:
        """The classes of what a function returns."""
        if function in self._heart.results:
            return (self._heart.results[function],)
        for entry in reversed(self._packed.entries(function)):
            if held := self._class_of(entry.trait("type") or ""):
                return (held,)
        return ()

    def part(self, attribute: str) -> str:
        """The class that usually stands under the name of a submodule."""
        return self._heart.parts.get(attribute, "")

    def owners(self, method: str) -> Sequence[str]:
        """The classes that define a method."""
        names = self._packed.by_leaf.get(method, ())
        owners = [name.rpartition(".")[0] for name in names if (one := self._all.entry(name)) and one.letter == "f"]
        return [owner for owner in owners if self.is_class(owner)]

    def says(self, name: str) -> bool:
        """Whether any name ends in that."""
        return name in self._packed.by_leaf

    def has_member(self, name: str) -> bool:
        """Whether any class has a member of a name."""
        return any(self.is_class(dotted.rpartition(".")[0]) for dotted in self._packed.by_leaf.get(name, ()))

    def modules_with(self, name: str) -> Iterable[str]:
        """The modules that have a name, those that define it first."""
        found: list[tuple[bool, str]] = []
        for dotted in self._packed.by_leaf.get(name, ()):
            module, entry = dotted.rpartition(".")[0], self._all.entry(dotted)
            if entry is not None and self.is_module(module):
                found.append((entry.letter == "i", module))
        return [module for _, module in sorted(found)]

    def module_class(self) -> str:
        """The class that most of its classes derive from."""
        return self._heart.module_class

    def whole(self) -> str:
        """The class that is patched most often."""
        return self._heart.whole

    def packages(self) -> Sequence[str]:
        """Its packages' top, and companions."""
        return (self._heart.packages[0].partition(".")[0], *self._heart.companions)

    def words(self) -> Sequence[str]:
        """Texts of which a file that patches it has one."""
        return self._heart.words

    def holds_file(self, path: str) -> bool:
        """Whether a file is of a copy of the library."""
        return any(f"/{package.replace('.', '/')}/" in f"/{path}" for package in self._heart.packages)
