"""One release of a library: whether a place is reached on it, and all that two releases may differ in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import cached_property

from mcore_unpatch.library.facts import Definition, How, Use
from mcore_unpatch.library.names import Namespace
from mcore_unpatch.library.packed import Packed
from mcore_unpatch.library.signatures import Signature, packed_signature

_NUMBERS = re.compile(r"\d+")
_STATEMENT = 4  # letters of a statement's digest
_PLAIN_BASES = ("object", "ABC", "Generic", "Protocol")
_ALIKE = 0.45  # of the statements, for what has another name now
_LATER = "0.99.0"


class Releases:
    """Each release of a packed file, made when it is first asked for."""

    def __init__(self, packed: Packed) -> None:
        self.packed = packed
        self._made: dict[int, Detailed] = {}

    def release(self, label: str) -> Detailed:
        """One release."""
        return self.at(self.packed.labels.index(label))

    def at(self, number: int) -> Detailed:
        """The release of a number."""
        if number not in self._made:
            self._made[number] = Detailed(self, number)
        return self._made[number]

    def between(self, first: int, end: int) -> list[Detailed]:
        """Some releases, oldest first."""
        return [self.at(number) for number in range(first, end)]

    def every(self) -> list[Detailed]:
        """All of them, oldest first."""
        return self.between(0, len(self.packed.labels))

    def later(self) -> Detailed:
        """What stands for the releases to come: the newest, of which nothing new is known."""
        return Detailed(self, len(self.packed.labels) - 1, is_later=True)


class Detailed:
    """One release."""

    def __init__(
        self, releases: Releases, number: int, is_later: bool = False, label: str = "", names: Namespace | None = None
    ) -> None:
        """With a `label`, a source whose `names` are read as they are asked for, and which is not among the others."""
        self.packed, self._releases, self._number = releases.packed, releases, number
        self.is_later, self._is_read = is_later, names is not None
        self.label = _LATER if is_later else label or self.packed.labels[number]
        self._all, self._names = self.packed.names(), names or self.packed.names(number)
        self.entry, self.lineage, self.parameters = self._names.entry, self._names.lineage, self._names.parameters
        self.ending, self.members = self._names.ending, self._names.members
        self._has: dict[str, bool | None] = {}
        self._definitions: dict[str, Definition | None] = {}
        self._callers: dict[str, list[Use]] = {}

    def __repr__(self) -> str:
        return f"{self.packed.heart.distribution} {self.label}"

    # -- whether a place is reached on it ----------------------------------------------------------------------------

    def has(self, dotted: str) -> bool | None:
        """Whether this release has a name; nothing where that is not known."""
        if dotted not in self._has:
            self._has[dotted] = self._asked(dotted)
        return self._has[dotted]

    def _asked(self, dotted: str) -> bool | None:
        heart = self.packed.heart
        package, since = heart.unknown_before
        if dotted.startswith(heart.unknown):
            return None
        if package and f"{dotted}.".startswith(f"{package}.") and self.version < since:
            return None if self.ever(dotted) else False  # what no later one has was not there before
        top = next((one for one in heart.packages if f"{dotted}.".startswith(f"{one}.")), "")
        if top and not self.label.endswith("+") and not self._names.has(top):
            return None  # a wheel may lack a package that a checkout has
        if self.is_later and not self._names.has(dotted):
            return False if self.ever(dotted) else None
        return self._names.has(dotted)

    @property
    def version(self) -> tuple[int, ...]:
        """Its numbers."""
        return tuple(map(int, _NUMBERS.findall(self.label)))

    def ever(self, dotted: str) -> bool:
        """Whether any release has a name."""
        return self._all.has(dotted)

    def lacks_yet(self, dotted: str) -> bool:
        """Whether this release is older than the first that has a name; one that has lost it is another matter."""
        if self.is_later or self.has(dotted) is not False:
            return False
        return any(self.packed.names(number).has(dotted) for number in range(self._number, len(self.packed.labels)))

    def may_fail(self, dotted: str) -> bool:
        """Whether an import of a name that is there may fail all the same."""
        while self.packed.within(dotted):
            entry = self.entry(dotted)
            if entry is not None and (entry.trait("optional") is not None or entry.trait("needs")):
                return True
            dotted = dotted.rpartition(".")[0]
        return False

    def refuses(self, dotted: str) -> bool | None:
        """Whether an import of another package fails on this release; nothing where the release does not decide."""
        prefix, function, parameter = self.packed.heart.refusing
        if not prefix or not dotted.startswith(prefix):
            return None
        taken = self.parameters(function)
        return taken is None or parameter not in taken

    def may_lack(self, dotted: str) -> bool:
        """Whether an object may be without an attribute that its class sets under a condition."""
        found = self._names.find(dotted)
        return found is not None and found[1].trait("maybe") is not None

    def version_fact(self, module: str, name: str) -> object:
        """What a module says of the version."""
        if module not in self.packed.heart.versioned:
            return None
        major, minor, patch = self.version[:3]
        if name in ("__version__", "__shortversion__"):
            return self.label
        return {"MAJOR": major, "MINOR": minor, "PATCH": patch, "VERSION": (major, minor, patch, "")}.get(name)

    def is_distribution(self, name: str) -> bool:
        """Whether a name is the one under which the library is installed."""
        return re.sub(r"[-_.]+", "-", name).lower() == self.packed.heart.distribution

    # -- other releases ----------------------------------------------------------------------------------------------

    def older(self) -> list[Detailed]:
        """The releases before this one, oldest first."""
        return self._releases.between(0, self._number)

    def newer(self) -> list[Detailed]:
        """The releases behind this one, oldest first."""
        return self._releases.between(self._number + 1, len(self.packed.labels))

    def newest(self) -> Detailed:
        """The newest release."""
        return self._releases.at(len(self.packed.labels) - 1)

    def last_with(self, name: str) -> Detailed | None:
        """The last of the releases before this one that has a name, where this one has lost it."""
        if self.has(name) is not False:
            return None
        return next((one for one in reversed(self.older()) if one.has(name)), None)

    def is_before(self, version: str) -> bool:
        """Whether it is older than a version; `0.18` lies below all of its releases."""
        return self.version < tuple(map(int, version.split(".")))

    # -- names -------------------------------------------------------------------------------------------------------

    def define(self, name: str) -> Definition | None:
        """What stands under a name, through re-exports and bases; of what moved later the place where it is."""
        if name not in self._definitions:
            self._definitions[name] = self._names.define(self.name_of(name)) if self.packed.within(name) else None
        return self._definitions[name]

    def find(self, name: str) -> Definition | None:
        """What stands under just that name, through re-exports and bases."""
        return self.define(name) if self._names.find(name) is not None else None

    def assigns(self, name: str) -> bool:
        """Whether a module sets a name by an assignment, which may be one of several."""
        entry = self.entry(name)
        return entry is not None and entry.letter == "v"

    def name_of(self, name: str) -> str:
        """The name under which this release has what later ones define elsewhere, and have from there too."""
        if self._names.find(name) is not None or not self.ever(name):
            return name
        parts = name.split(".")
        for cut in (len(parts), len(parts) - 1):  # a function or class, or a method of a class
            whole = ".".join(parts[:cut])
            for other in self.packed.listing.by_leaf.get(parts[cut - 1], ()):
                found = self._all.find(other) if other != whole else None
                if found is not None and found[0] == whole and self._names.find(other) is not None:
                    return ".".join([other, *parts[cut:]])
        return name

    @cached_property
    def derived(self) -> dict[str, list[str]]:
        """The classes that derive from a class, directly or not."""
        return self._names.derived

    def is_class(self, name: str) -> bool:
        """Whether this release has a class of a name."""
        found = self.define(name)
        return found is not None and found.letter == "c"

    @cached_property
    def in_specs(self) -> dict[str, tuple[str, ...]]:
        """The classes that its own specs name, and the slots of each."""
        found: dict[str, tuple[str, ...]] = {}
        for name in self.packed.in_specs:
            uses = [use for use in self.uses(name) if use.how in (How.NAMED, How.SLOT)]
            if uses:
                found[name] = tuple(use.place for use in uses if use.how == How.SLOT)
        return found

    # -- what a call of a name takes ---------------------------------------------------------------------------------

    def taken(self, name: str) -> Signature | None:
        """What a call of a name takes, the object itself left out; nothing where that is not evident."""
        known = self.define(name)
        if known is not None and known.letter == "c":
            return self._constructor(known.name)
        if known is None or known.letter != "f":
            return None
        by = known.entry.trait("by")
        if (other := known.entry.trait("whole")) and (by is None or "signature" in by):  # it hands on all that it gets
            return self.taken(other)
        if by is not None:
            return None
        bound = self.is_method(known) and known.entry.trait("static") is None
        return known.signature.without_first() if bound else known.signature

    def is_method(self, known: Definition) -> bool:
        """Whether a function stands in a class."""
        return self._names.is_a(known.name.rpartition(".")[0], "c")

    def _constructor(self, name: str) -> Signature | None:
        words: dict[str, str] = {}
        own: Signature | None = None
        is_open = False  # what a class from outside takes is not known
        for base in reversed(self.lineage(name)):
            entry = self.entry(base)
            if entry is None:
                is_open = is_open or base.rpartition(".")[2] not in _PLAIN_BASES
                continue
            made = self.entry(f"{base}.__init__")
            if made is not None and made.letter == "f":
                own, is_open = packed_signature(made.detail).without_first(), False
            elif entry.trait("dataclass") is not None:
                words = {} if own is not None or is_open else words
                own, is_open = None, False
                fields = filter(None, (entry.trait("fields") or "").split(","))
                words |= {word.partition("=")[0]: word for word in fields}
        if self._names.find(f"{name}.__new__") is not None or is_open:
            return None
        return own if own is not None else packed_signature(" ".join(words.values()))

    # -- who uses it -------------------------------------------------------------------------------------------------

    def uses(self, name: str) -> Sequence[Use]:
        """How the library uses a name."""
        return self.packed.used(name, self._number) if not self._is_read else ()

    def calls(self, name: str) -> list[Use]:
        """Who calls a function: of a method also through base classes and subclasses; those that are certain first."""
        if name not in self._callers:
            self._callers[name] = self._find_callers(self.name_of(name))
        return self._callers[name]

    def _find_callers(self, name: str) -> list[Use]:
        entry, own = self.entry(name), self.define(name)
        if entry is not None and entry.letter == "v" and entry.trait("unread") is not None:
            return []  # another name of what is called
        owner, _, leaf = name.rpartition(".")
        if entry is not None and entry.letter == "i":
            uses = self._through(name, frozenset())
        else:
            uses = self._of_family(own.name if own is not None else name, owner, leaf)
        taken, family = self.taken(name), self.lineage(owner)
        found: list[Use] = []
        for use in uses:
            assert use.call is not None
            # A call that the library's own function would not take is one of something else.
            is_own = use.place.rpartition(".")[0] in family
            gives = own.gives if own is not None else 0
            unpacks_other = bool(gives and use.call.unpacked) and use.call.unpacked != gives
            if is_own or ((taken is None or not taken.misfit(use.call)) and not unpacks_other):
                found.append(use)
        found = [use for use in found if use.sure] or found
        return sorted(found, key=lambda use: (len(self.lineage(use.place.rpartition(".")[0])), use.place))

    def _of_family(self, mine: str, owner: str, leaf: str) -> list[Use]:
        uses = [use for use in self.uses(mine) if use.call is not None]
        holder = self._names.find(owner)
        if holder is not None and holder[1].letter == "c":
            for base in self.lineage(holder[0]):
                if f"{base}.{leaf}" != mine:
                    uses += [use for use in self._answered(f"{base}.{leaf}") if self._reaches(use, holder[0])]
            for sub in self.derived.get(holder[0], ()):
                found = self._names.find(f"{sub}.{leaf}")
                if found is not None and found[0] == mine:
                    uses += self._answered(f"{sub}.{leaf}")
        return uses

    def importing(self, name: str) -> list[str]:
        """The names under which other modules have what they import from there."""
        every = self.ending(name.rpartition(".")[2])
        return [other for other, entry in every if (entry.letter, entry.detail) == ("i", name)]

    def _through(self, name: str, seen: frozenset[str]) -> list[Use]:
        """The calls by a module's name for what another defines, and by those that import it from that module."""
        uses = [use for use in self.uses(name) if use.call is not None]
        for other in self.importing(name):
            if other not in seen:
                uses += self._through(other, seen | {name})
        return uses

    def _answered(self, name: str) -> list[Use]:
        return [use for use in self.uses(name) if use.how == How.CALLED and use.call is not None]

    def _reaches(self, use: Use, cls: str) -> bool:
        """Whether a call on a base class may be answered by a class, which may have a method in place of the caller."""
        caller, _, method = use.place.rpartition(".")
        if caller not in self.lineage(cls):
            return True  # somebody else's call, on an object of the base class
        instead = self._names.find(f"{cls}.{method}")
        return instead is None or instead[0] == use.place

    # -- what became of a name ---------------------------------------------------------------------------------------

    def moved(self, before: Definition) -> str:
        """Where a definition of an older release is now: the same name elsewhere, or much the same body beside it."""
        owner, _, leaf = before.name.rpartition(".")
        is_method = before.letter == "f" and owner.rpartition(".")[2][:1].isupper()
        tail = "." + ".".join(before.name.split(".")[-2 if is_method else -1 :])
        every = ((name, entry) for name, entry in self.ending(leaf) if name != before.name and name.endswith(tail))
        same = [name for name, entry in every if entry.letter == before.letter]
        if len(same) == 1:
            return same[0]
        beside = [name for name, _ in self.members(owner) if before.statements]
        scored = [
            (likeness(before.statements, one.statements), one.name)
            for name in same or beside
            if (one := self.define(name))
        ]
        score, best = max(scored, default=(0.0, ""))
        return best if score >= _ALIKE and before.letter == "f" else ""

    def versions(self, name: str) -> Iterator[Definition]:
        """What a name has been, release by release where that changed."""
        for entry in self.packed.entries(name):
            if entry.letter != "-":
                yield Definition(name, entry, *self.packed.body(name, entry))


def likeness(left: str, right: str) -> float:
    """How much two functions have in common, by the digests of their statements: 0 nothing, 1 everything."""
    return SequenceMatcher(None, split(left), split(right), autojunk=False).ratio()


def split(statements: str) -> list[str]:
    """The digests of statements one by one."""
    return [statements[at : at + _STATEMENT] for at in range(0, len(statements), _STATEMENT)]
