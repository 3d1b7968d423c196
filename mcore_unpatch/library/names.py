"""The names of one version of a library, or of all of them as one: through re-exports, aliases and base classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from mcore_unpatch.library.facts import Definition, Entry, Heart

_MOST_HOPS = 12
_LONGEST = 30  # parts of a name
Body = tuple[str, str]  # the digests of a body and of its statements


class Listing:
    """Every name that there may be, by its parts."""

    def __init__(self, names: Iterable[str] = (), is_class: Callable[[str], bool] = bool) -> None:
        """`is_class` leaves out names that no version has as a class."""
        self._names, self._is_class = names, is_class

    @cached_property
    def by_owner(self) -> dict[str, list[str]]:
        """The names by what they stand in."""
        return self._grouped(0)

    @cached_property
    def by_leaf(self) -> dict[str, list[str]]:
        """The names by their last part."""
        return self._grouped(2)

    @cached_property
    def classes(self) -> list[str]:
        """The names that are a class in some version."""
        return list(filter(self._is_class, self._names))

    def _grouped(self, part: int) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in self._names:
            found.setdefault(name.rpartition(".")[part], []).append(name)
        return found


class Namespace:
    """Questions about names, answered by what each is by itself."""

    def __init__(
        self,
        heart: Heart,
        listing: Listing,
        entry: Callable[[str], Entry | None],
        body: Callable[[str, Entry], Body] = lambda name, entry: ("", ""),
    ) -> None:
        self.heart, self._listing, self.entry, self._body = heart, listing, entry, body
        self._prefixes = heart.prefixes
        self._found: dict[str, tuple[str, Entry] | None] = {}
        self._lineages: dict[str, tuple[str, ...]] = {}

    def within(self, dotted: str) -> bool:
        """Whether a dotted name lies in the library, there or not."""
        return dotted.startswith(self._prefixes) or dotted in self.heart.packages

    def define(self, name: str) -> Definition | None:
        """The definition behind a dotted name, with its body."""
        found = self.find(name)
        return Definition(*found, *self._body(*found)) if found is not None else None

    def find(self, name: str, hops: int = 0) -> tuple[str, Entry] | None:
        """Where the definition behind a dotted name stands, and what it is."""
        if name not in self._found:
            if hops > _MOST_HOPS or name.count(".") > _LONGEST:
                return None
            self._found[name] = self._find(name, hops)
        return self._found[name]

    def _find(self, name: str, hops: int) -> tuple[str, Entry] | None:
        entry = self.entry(name)
        if entry is not None:
            other = entry.detail if entry.letter == "i" else entry.trait("alias") if entry.letter == "v" else None
            if other and other != name and self.within(other):
                return self.find(other, hops + 1) or ((name, entry) if entry.letter == "v" else None)
            return name, entry
        owner_name, _, leaf = name.rpartition(".")
        owner = self.find(owner_name, hops + 1) if self.within(owner_name) else None
        if owner is None:
            return None
        if owner[0] != owner_name:
            return self.find(f"{owner[0]}.{leaf}", hops + 1)
        if owner[1].letter == "c":
            for base in self.lineage(owner_name)[1:]:
                if (inherited := self.entry(f"{base}.{leaf}")) is not None:
                    return f"{base}.{leaf}", inherited
            return None
        star = self.entry(f"{owner_name}.*")
        return self.find(f"{star.detail.removesuffix('*')}{leaf}", hops + 1) if star else None

    def is_a(self, name: str, letter: str) -> bool:
        """Whether a module or class binds a name itself, as a thing of a kind."""
        entry = self.entry(name) if self.within(name) else None
        return entry is not None and entry.letter == letter

    def members(self, owner: str) -> Iterator[tuple[str, Entry]]:
        """What a class or module binds itself."""
        for name in self._listing.by_owner.get(owner, ()):
            if (entry := self.entry(name)) is not None:
                yield name, entry

    def ending(self, leaf: str) -> Iterator[tuple[str, Entry]]:
        """The names whose last part is that."""
        for name in self._listing.by_leaf.get(leaf, ()):
            if (entry := self.entry(name)) is not None:
                yield name, entry

    def lineage(self, name: str) -> tuple[str, ...]:
        """A class and its bases, the nearest first; those of other libraries as they are written."""
        if name not in self._lineages:
            self._lineages[name] = (name,)  # what a cycle gets to see
            try:
                self._lineages[name] = self._ordered(name)
            except RecursionError:  # of who asks, deep in a file: it is no answer for the next one
                del self._lineages[name]
                raise
        return self._lineages[name]

    def _ordered(self, name: str) -> tuple[str, ...]:
        found, entry = [name], self.entry(name)
        for text in entry.detail.split() if entry is not None and entry.letter == "c" else ():
            base = self.find(f"{name.rpartition('.')[0]}.{text}")
            if base is None:
                found.append(text)
            else:
                found += self.lineage(base[1].detail if base[1].letter == "i" else base[0])
        # A class that several bases share stands behind all of them, as in Python's own order.
        return tuple(dict.fromkeys(reversed(found)))[::-1]

    @cached_property
    def derived(self) -> dict[str, list[str]]:
        """The classes that derive from a class, directly or not."""
        found: dict[str, list[str]] = {}
        for name in self._listing.classes:
            for base in self.lineage(name)[1:] if self.is_a(name, "c") else ():
                found.setdefault(base, []).append(name)
        return found

    def has(self, name: str) -> bool:
        """Whether a name is there, what classes inherit from outside and modules work out included."""
        if self.find(name) is not None:
            return True
        owner, _, leaf = name.rpartition(".")
        holder = self.find(owner) if self.within(owner) else None
        if holder is None:
            return any(True for _ in self.members(name))  # a folder without an `__init__.py`
        if holder[1].letter != "c":
            return self.entry(f"{holder[0]}.__getattr__") is not None
        return self.inherits(holder[0], leaf)

    def inherits(self, cls: str, name: str) -> bool:
        """Whether a class has a method from a base outside of the library."""
        outside = (base.rpartition(".")[2] for base in self.lineage(cls) if not self.within(base))
        return any(name in self.heart.outside.get(base, ()) for base in outside)

    def parameters(self, name: str) -> tuple[str, ...] | None:
        """The parameters of a function, or of the constructor of a class."""
        found = self.find(name)
        if found is not None and found[1].letter == "c":
            found = self.find(f"{found[0]}.__init__") or found
        if found is None:
            return None
        if found[1].letter == "c":  # a dataclass
            fields = [one.trait("fields") or "" for base in self.lineage(found[0]) if (one := self.entry(base))]
            words = [word.partition("=")[0] for text in reversed(fields) for word in text.split(",") if word]
            return ("self", *dict.fromkeys(words)) if words else None
        if found[1].letter != "f":
            return None
        return tuple(word.partition("=")[0].strip("*") for word in found[1].detail.split() if word not in "*/")
