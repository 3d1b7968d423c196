"""What the other rooms ask of a library: whichever it is, its answers come through these three interfaces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol


class SymbolKind(StrEnum):
    """What a name of a library stands for."""

    MODULE = "module"
    CLASS = "class"
    FUNCTION = "function"
    VALUE = "value"
    STATE = "state"  # a value that the library itself rebinds: setting it is no patch


class Symbol(NamedTuple):
    """A definition of a library under the dotted name where it stands."""

    kind: SymbolKind
    name: str


class MemberKind(StrEnum):
    """What a class has under a name."""

    METHOD = "method"
    PROPERTY = "property"
    ATTRIBUTE = "attribute"
    CLASS = "class"


class Member(NamedTuple):
    """Something a class has of its own; `holds`: the class of the object that it is or returns, where that is known."""

    kind: MemberKind
    owner: str
    holds: str = ""
    is_callable: bool = False  # an attribute that is annotated as a function
    is_list: bool = False  # of such objects


class Library(Protocol):
    """A library, its versions taken together: what any of them has, as the newest says it."""

    def within(self, dotted: str) -> bool:
        """Whether a dotted name lies in the library, there or not."""

    def symbol(self, dotted: str) -> Symbol | None:
        """The definition behind a dotted name, through re-exports and bases; nothing where no version has it."""

    def is_module(self, dotted: str) -> bool:
        """Whether a dotted name is one of its modules."""

    def is_class(self, dotted: str) -> bool:
        """Whether a dotted name is where one of its classes stands."""

    def lineage(self, cls: str) -> Sequence[str]:
        """A class and its bases, the nearest first; those of other libraries as they are written."""

    def own_member(self, cls: str, name: str) -> Member | None:
        """What a class itself has under a name, its bases left out."""

    def inherits(self, cls: str, name: str) -> bool:
        """Whether a class has a method from a base of another library that is known."""

    def result(self, function: str) -> Sequence[str]:
        """The classes of what a function returns: several where it returns several values."""

    def part(self, attribute: str) -> str:
        """The class that usually stands under the name of a submodule, which no constructor names."""

    def owners(self, method: str) -> Sequence[str]:
        """The classes that define a method of a name of their own."""

    def says(self, name: str) -> bool:
        """Whether any name of it ends in that."""

    def has_member(self, name: str) -> bool:
        """Whether any of its classes has a member of a name."""

    def modules_with(self, name: str) -> Iterable[str]:
        """The modules that have a name, those that define it first."""

    def module_class(self) -> str:
        """The class that most of its classes derive from: what an object is of which nothing else is known."""

    def whole(self) -> str:
        """The class that is patched most often: what an object is that is only known to hold a part."""

    def packages(self) -> Sequence[str]:
        """The dotted names that everything of it stands below, and those of its well-known companions."""

    def words(self) -> Sequence[str]:
        """Texts of which a file that patches it has one."""

    def holds_file(self, path: str) -> bool:
        """Whether a file is of a copy of the library that a repository carries."""


class Release(Protocol):
    """One version of a library, to be asked whether a place is reached on it."""

    @property
    def label(self) -> str:
        """The version as text."""

    def has(self, dotted: str) -> bool | None:
        """Whether this version has a name of the library; nothing where that is not known."""

    def lacks_yet(self, dotted: str) -> bool:
        """Whether this version is older than the first that has a name."""

    def ever(self, dotted: str) -> bool:
        """Whether any version has a name."""

    def may_fail(self, dotted: str) -> bool:
        """Whether an import of a name that is there may fail all the same: it needs what not everybody has."""

    def may_lack(self, dotted: str) -> bool:
        """Whether an object of a class may be without an attribute that its class sets under a condition."""

    def parameters(self, dotted: str) -> Sequence[str] | None:
        """The names of the parameters of a function, or of a class's constructor."""

    def version_fact(self, module: str, name: str) -> object:
        """What a module says of the version: `__version__`, `MAJOR`; nothing for another name."""

    def is_distribution(self, name: str) -> bool:
        """Whether a name is the one under which the library is installed."""

    @property
    def is_later(self) -> bool:
        """Whether it stands for the versions to come, of which nothing new is known."""
