"""Every version of a library as one, whichever library it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mcore_unpatch.library.packed import Packed
from mcore_unpatch.library.symbols import Member, MemberKind, Symbol, SymbolKind

_KINDS = {"m": SymbolKind.MODULE, "c": SymbolKind.CLASS, "f": SymbolKind.FUNCTION}
_OF_EVERY_CLASS = frozenset(dir(object))


class Library:
    """Every version as one: what any of them has, as the newest says it."""

    def __init__(self, packed: Packed) -> None:
        self._packed, self._all, self.heart = packed, packed.names(), packed.heart
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
        kind = _KINDS.get(found[1].letter, SymbolKind.VALUE)
        if kind == SymbolKind.VALUE and found[1].trait("state") is not None:
            kind = SymbolKind.STATE
        asked, _, leaf = dotted.rpartition(".")
        holder = self.symbol(asked) if kind == SymbolKind.FUNCTION else None
        if holder is not None and holder.kind == SymbolKind.CLASS:
            return Symbol(kind, f"{holder.name}.{leaf}")
        return Symbol(kind, found[0])

    def is_module(self, dotted: str) -> bool:
        """Whether a dotted name is one of its modules."""
        return self._all.is_a(dotted, "m")

    def is_class(self, dotted: str) -> bool:
        """Whether a dotted name is where one of its classes stands."""
        return self._all.is_a(dotted, "c")

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
        if held := self.heart.holds.get((cls, name)) or self.heart.lists.get((cls, name)):
            return Member(MemberKind.ATTRIBUTE, cls, held, is_list=(cls, name) in self.heart.lists)
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
        return found[0] if found is not None and found[1].letter == "c" else ""

    def inherits(self, cls: str, name: str) -> bool:
        """Whether a class has a method from a base of another library."""
        return (name in _OF_EVERY_CLASS and self.is_class(cls)) or self._all.inherits(cls, name)

    def has_method(self, cls: str, name: str) -> bool:
        """Whether objects of a class have a method, inherited ones included."""
        if not self.is_class(cls):
            return False
        return any(self._all.is_a(f"{base}.{name}", "f") for base in self.lineage(cls)) or self.inherits(cls, name)

    def result(self, function: str) -> str:
        """The class of what a function returns, where that is known."""
        told = (self._class_of(one.trait("type") or "") for one in reversed(self._packed.entries(function)))
        return self.heart.results.get(function) or next(filter(None, told), "")

    def part(self, attribute: str) -> str:
        """The class that usually stands under the name of a submodule."""
        return self.heart.parts.get(attribute, "")

    def owners(self, method: str) -> Sequence[str]:
        """The classes that define a method."""
        owners = (name.rpartition(".")[0] for name, entry in self._all.ending(method) if entry.letter == "f")
        return [owner for owner in owners if self.is_class(owner)]

    def says(self, name: str) -> bool:
        """Whether any name ends in that."""
        return name in self._packed.listing.by_leaf

    def has_member(self, name: str) -> bool:
        """Whether any class has a member of a name."""
        return any(self.is_class(dotted.rpartition(".")[0]) for dotted in self._packed.listing.by_leaf.get(name, ()))

    def modules_with(self, name: str) -> Iterable[str]:
        """The modules that have a name, those that define it first."""
        found = ((entry.letter == "i", dotted.rpartition(".")[0]) for dotted, entry in self._all.ending(name))
        return [module for _, module in sorted(found) if self.is_module(module)]

    def holds_file(self, path: str) -> bool:
        """Whether a file is of a copy of the library."""
        return any(f"/{package.replace('.', '/')}/" in f"/{path}" for package in self.heart.packages)
