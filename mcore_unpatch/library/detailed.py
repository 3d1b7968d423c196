"""One release with what its functions take, what their bodies are and who uses them: what two releases differ in."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from mcore_unpatch.library.one_release import OneRelease
from mcore_unpatch.library.released import Entry, Found, Packed
from mcore_unpatch.library.signatures import Call, Signature, packed_signature

_VERSION_END, _FIELD, _USE = "\x1e", "\x1f", "\x1d"
_STATEMENT = 4  # letters of a statement's digest
_PLAIN_BASES = ("object", "ABC", "Generic", "Protocol")
_ALIKE = 0.45  # of the statements, for what has another name now


class How(StrEnum):
    """A way in which the library uses a name of its own."""

    NAMED = "s"  # in a spec
    DEFAULT = "a"  # as a default of a parameter or field
    CALLED = "c"  # on an object, so that a subclass may answer
    EXACT = "e"  # just that definition is called
    DERIVED = "d"
    BASE = "b"
    ASKED = "i"  # with `isinstance`
    COMPARED = "q"
    USED = "v"
    SLOT = "l"


class Use(NamedTuple):
    """One way in which the library uses a name; sure: the object is known, not told by the method's name alone."""

    how: How
    place: str
    call: Call | None = None
    sure: bool = True
    condition: str = ""


class Definition(NamedTuple):
    """What stands under a name: m module, c class, f function, v value, a attribute, i import from elsewhere."""

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


class Details:
    """The bodies and uses of every release, read when they are first asked for."""

    def __init__(self, packed: Packed, source: bytes) -> None:
        self.packed, self._source = packed, source
        self._versions: dict[str, Detailed] = {}
        self._uses: dict[tuple[str, int], tuple[Use, ...]] = {}

    def release(self, label: str) -> Detailed:
        """One release."""
        if label not in self._versions:
            self._versions[label] = Detailed(self, label)
        return self._versions[label]

    def bodies(self, name: str) -> Iterator[tuple[Entry, str, str]]:
        """What a name was, release by release where that changed, with the digests of body and statements."""
        for entry, text in zip(self.packed.entries(name), self._bodies.get(name, "").split(_VERSION_END), strict=False):
            digest, _, statements = text.partition(_FIELD)
            yield entry, digest, statements

    def uses(self, name: str, number: int) -> tuple[Use, ...]:
        """How a release uses a name."""
        if (name, number) not in self._uses:
            told = ""
            for part in self._used.get(name, "").split(_VERSION_END) if name in self._used else ():
                since, _, text = part.partition(_FIELD)
                told = text if int(since) <= number else told
            self._uses[name, number] = tuple(map(_use, told.split(_USE))) if told else ()
        return self._uses[name, number]

    @cached_property
    def _streams(self) -> list[bytes]:
        at, found = self._source.index(b"\n") + 1, []
        while at < len(self._source):
            end = at + 4 + int.from_bytes(self._source[at : at + 4])
            found.append(self._source[at + 4 : end])
            at = end
        return found

    @cached_property
    def _bodies(self) -> dict[str, str]:
        return dict(zip(self.packed.lines, zlib.decompress(self._streams[1]).decode().split("\n"), strict=True))

    @cached_property
    def _used(self) -> dict[str, str]:
        text = zlib.decompress(self._streams[2]).decode()
        return dict(line.split("\t", 1) for line in text.split("\n")) if text else {}

    @cached_property
    def in_specs(self) -> list[str]:
        """The names that specs of some release have."""
        one = re.compile(f"[{_FIELD}{_USE}][{How.NAMED}{How.SLOT}]\\??\\|")
        return [name for name, line in self._used.items() if one.search(line)]

    @cached_property
    def may_be_classes(self) -> list[str]:
        """The names that are a class on some release."""
        return [name for name, line in self.packed.lines.items() if f"c{_FIELD}" in line]


def _use(text: str) -> Use:
    how, _, place, *rest = text.split("|")
    call = Call.read(rest[0]) if rest else None
    return Use(How(how[0]), place, call, not how.endswith("?"), "".join(rest[1:]))


class Detailed(OneRelease):
    """One release, as `library.interface.Compared` asks it."""

    def __init__(self, details: Details, label: str) -> None:
        super().__init__(details.packed, label)
        self._details = details
        self._definitions: dict[str, Definition | None] = {}
        self._callers: dict[str, list[Use]] = {}

    def older(self) -> list[Detailed]:
        """The releases before this one, oldest first."""
        return [self._details.release(label) for label in self._packed.labels[: self._number]]

    def newest(self) -> Detailed:
        """The newest release."""
        return self._details.release(self._packed.labels[-1])

    def last_with(self, name: str) -> Detailed | None:
        """The last of the releases before this one that has a name, where this one has lost it."""
        if self.has(name) is not False:
            return None
        return next((one for one in reversed(self.older()) if one.has(name)), None)

    def is_before(self, version: str) -> bool:
        """Whether it is older than a version; `0.18` lies below all of its releases."""
        return self._numbers < tuple(map(int, version.split(".")))

    @cached_property
    def in_specs(self) -> dict[str, tuple[str, ...]]:
        """The classes that its own specs name, and the slots of each."""
        found: dict[str, tuple[str, ...]] = {}
        for name in self._details.in_specs:
            uses = [use for use in self.uses(name) if use.how in (How.NAMED, How.SLOT)]
            if uses:
                found[name] = tuple(use.place for use in uses if use.how == How.SLOT)
        return found

    def define(self, name: str) -> Definition | None:
        """What stands under a name, through re-exports and bases; of what moved later the place where it is."""
        if name not in self._definitions:
            found = self._names.find(self.name_of(name)) if self._packed.within(name) else None
            self._definitions[name] = self._with_body(found) if found is not None else None
        return self._definitions[name]

    def _with_body(self, found: Found) -> Definition:
        for entry, digest, statements in self._details.bodies(found.name):
            if entry is found.entry:
                return Definition(found.name, entry, digest, statements)
        return Definition(found.name, found.entry)

    def entry(self, name: str) -> Entry | None:
        """What a module or class binds under a name itself, an import too."""
        return self._names.entry(name)

    def name_of(self, name: str) -> str:
        """The name under which this release has what later ones define elsewhere, and have from there too."""
        if self._names.find(name) is not None or not self.ever(name):
            return name
        parts = name.split(".")
        for cut in (len(parts), len(parts) - 1):  # a function or class, or a method of a class
            whole = ".".join(parts[:cut])
            for other in self._packed.by_leaf.get(parts[cut - 1], ()):
                found = self._all.find(other) if other != whole else None
                if found is not None and found.name == whole and self._names.find(other) is not None:
                    return ".".join([other, *parts[cut:]])
        return name

    def lineage(self, cls: str) -> Sequence[str]:
        """A class and its bases."""
        return self._names.lineage(cls)

    @cached_property
    def derived(self) -> dict[str, list[str]]:
        """The classes that derive from a class, directly or not."""
        found: dict[str, list[str]] = {}
        for name in self._details.may_be_classes:
            entry = self._names.entry(name)
            for base in self._names.lineage(name)[1:] if entry is not None and entry.letter == "c" else ():
                found.setdefault(base, []).append(name)
        return found

    def is_class(self, name: str) -> bool:
        """Whether this release has a class of a name."""
        found = self.define(name)
        return found is not None and found.letter == "c"

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
        owner = self._names.entry(known.name.rpartition(".")[0])
        return owner is not None and owner.letter == "c"

    def _constructor(self, name: str) -> Signature | None:
        words: dict[str, str] = {}
        own: Signature | None = None
        is_open = False  # what a class from outside takes is not known
        for base in reversed(self.lineage(name)):
            entry = self._names.entry(base)
            if entry is None:
                is_open = is_open or base.rpartition(".")[2] not in _PLAIN_BASES
                continue
            made = self._names.entry(f"{base}.__init__")
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
        return self._details.uses(name, self._number)

    def calls(self, name: str) -> list[Use]:
        """Who calls a function: of a method also through base classes and subclasses; those that are certain first."""
        if name not in self._callers:
            self._callers[name] = self._find_callers(self.name_of(name))
        return self._callers[name]

    def _find_callers(self, name: str) -> list[Use]:
        entry, own = self._names.entry(name), self.define(name)
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
        if holder is not None and holder.entry.letter == "c":
            for base in self.lineage(holder.name):
                if f"{base}.{leaf}" != mine:
                    uses += [use for use in self._answered(f"{base}.{leaf}") if self._reaches(use, holder.name)]
            for sub in self.derived.get(holder.name, ()):
                found = self._names.find(f"{sub}.{leaf}")
                if found is not None and found.name == mine:
                    uses += self._answered(f"{sub}.{leaf}")
        return uses

    def _through(self, name: str, seen: frozenset[str]) -> list[Use]:
        """The calls by a module's name for what another defines, and by those that import it from that module."""
        uses = [use for use in self.uses(name) if use.call is not None]
        for other in self._packed.by_leaf.get(name.rpartition(".")[2], ()):
            entry = self._names.entry(other) if other not in seen else None
            if entry is not None and (entry.letter, entry.detail) == ("i", name):
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
        return instead is None or instead.name == use.place

    # -- what became of a name ---------------------------------------------------------------------------------------

    def moved(self, before: Definition) -> str:
        """Where a definition of an older release is now: the same name elsewhere, or much the same body beside it."""
        owner, _, leaf = before.name.rpartition(".")
        is_method = before.letter == "f" and owner.rpartition(".")[2][:1].isupper()
        tail = "." + ".".join(before.name.split(".")[-2 if is_method else -1 :])
        every = (name for name in self._packed.by_leaf.get(leaf, ()) if name != before.name and name.endswith(tail))
        same = [name for name in every if (entry := self._names.entry(name)) and entry.letter == before.letter]
        if len(same) == 1:
            return same[0]
        beside = [name for name in self._packed.by_owner.get(owner, ()) if before.statements]
        scored = [
            (likeness(before.statements, one.statements), one.name)
            for name in same or beside
            if (one := self.define(name))
        ]
        score, best = max(scored, default=(0.0, ""))
        return best if score >= _ALIKE and before.letter == "f" else ""

    def versions(self, name: str) -> Iterator[Definition]:
        """What a name has been, release by release where that changed."""
        for entry, digest, statements in self._details.bodies(name):
            if entry.letter != "-":
                yield Definition(name, entry, digest, statements)


def likeness(left: str, right: str) -> float:
    """How much two functions have in common, by the digests of their statements: 0 nothing, 1 everything."""
    return SequenceMatcher(None, split(left), split(right), autojunk=False).ratio()


def split(statements: str) -> list[str]:
    """The digests of statements one by one."""
    return [statements[at : at + _STATEMENT] for at in range(0, len(statements), _STATEMENT)]
