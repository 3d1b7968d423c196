"""What is told of a library: what its names are since which version, how it uses them, and what is known by heart."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from mcore_unpatch.library.signatures import Call, Signature, packed_signature

_NOTHING: Mapping[object, object] = MappingProxyType({})
KINDS = {"m": "module", "c": "class", "f": "function", "v": "value", "a": "attribute", "i": "import"}


class Entry(NamedTuple):
    """What a name is since a version.

    letter: one of `KINDS`; a value is bound by a module or class body, an attribute by methods on `self`.
    detail: the parameter list of a function, the bases of a class as written, the dotted name of an import.
    traits: words about it, as `trait` reads them: `property`, `maybe` (not set in any case), `gives:5`, `type:Class`.
    """

    since: int
    letter: str
    detail: str = ""
    traits: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Its letter as a word."""
        return KINDS[self.letter]

    def trait(self, name: str) -> str | None:
        """What stands behind `name:` among the traits; empty for a trait alone, None where it has none."""
        for word in self.traits:
            key, _, value = word.partition(":")
            if key == name:
                return value
        return None


class Definition(NamedTuple):
    """What stands under a name, and digests of its body and, in a row, of its statements."""

    name: str
    entry: Entry
    digest: str = ""
    statements: str = ""

    @property
    def letter(self) -> str:
        """Its kind, as it is packed."""
        return self.entry.letter

    @property
    def signature(self) -> Signature:
        """The parameters of a function as they stand, the object included."""
        return packed_signature(self.entry.detail)

    @property
    def gives(self) -> int:
        """How many values it returns, where that is plain; else 0."""
        return int(self.entry.trait("gives") or 0)


class How(StrEnum):
    """A way in which the library uses a name of its own."""

    NAMED = "s"  # in a spec
    DEFAULT = "a"  # as a default of a parameter or field
    CALLED = "c"  # on an object, so that a subclass may answer
    EXACT = "e"  # just that definition is called
    DERIVED = "d"  # a subclass is built
    BASE = "b"
    ASKED = "i"  # with `isinstance`
    COMPARED = "q"
    USED = "v"
    SLOT = "l"  # of a spec, that names the class


class Use(NamedTuple):
    """One way in which the library uses a name; `place` is one that does, the nearest to the definition.

    sure: the object is known, not told by the method's name alone. condition: on the config or the arguments, under
    which alone it is called so. users: how many classes and modules do it.
    """

    how: How
    place: str
    call: Call | None = None
    sure: bool = True
    condition: str = ""
    users: int = 1


class Heart(NamedTuple):
    """What is known of a library by heart."""

    packages: tuple[str, ...]
    distribution: str
    versioned: tuple[str, ...] = ()
    parts: Mapping[str, str] = _NOTHING  # type: ignore[assignment]
    lists: Mapping[tuple[str, str], str] = _NOTHING  # type: ignore[assignment]
    holds: Mapping[tuple[str, str], str] = _NOTHING  # type: ignore[assignment]
    results: Mapping[str, str] = _NOTHING  # type: ignore[assignment]
    outside: Mapping[str, frozenset[str]] = _NOTHING  # type: ignore[assignment]
    whole: str = ""
    module_class: str = ""
    companions: tuple[str, ...] = ()  # packages that build its objects
    words: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()  # what wheels may lack, or have without a source
    unknown_before: tuple[str, tuple[int, ...]] = ("", ())  # a package that only checkouts had before a release
    refusing: tuple[str, str, str] = ("", "", "")  # a package that needs a parameter of a function

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What the dotted names of all that it holds begin with."""
        return tuple(f"{package}." for package in self.packages)

    def within(self, dotted: str) -> bool:
        """Whether a dotted name lies in the library, there or not."""
        return dotted.startswith(self.prefixes) or dotted in self.packages

    @property
    def tops(self) -> tuple[str, ...]:
        """The folder that every package stands in, and companions."""
        return (self.top, *self.companions)

    @property
    def top(self) -> str:
        """The folder that every package stands in."""
        return self.packages[0].partition(".")[0]
