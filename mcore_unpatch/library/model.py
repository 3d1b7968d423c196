"""One library at one version: questions about its names, its classes, and how it uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cached_property

from mcore_unpatch.library.digests import split
from mcore_unpatch.library.fact import Call, Fact, Parameters, parameters, without_self
from mcore_unpatch.records import field, record

_MOST_HOPS = 12
_ALIKE = 0.45  # of the statements in common


@record
class Library:
    """A distribution that a model is made of, its packages, and the classes in lists of modules, by class and name."""

    distribution: str
    packages: tuple[str, ...]
    items: Mapping[tuple[str, str], str] = field(default_factory=dict, compare=False)

    def holds(self, name: str) -> bool:
        """Whether a dotted name lies in the distribution."""
        return name in self.packages or name.startswith(tuple(f"{package}." for package in self.packages))

    @property
    def top(self) -> str:
        """The folder that every package stands in."""
        return self.packages[0].partition(".")[0]


@record
class Known:
    """A definition, and the dotted name it stands under."""

    name: str
    fact: Fact


@record
class Usage:
    """One way in which the library uses a name: `how` is one of `HOWS`, `place` is one that does."""

    how: str
    place: str
    users: int = 1  # classes and modules that do it
    call: Call | None = None
    sure: bool = True  # of a call: the object is known, not told by the name of its method alone
    condition: str = ""  # on the config or the arguments, under which alone it is called so


# Named in a ModuleSpec, a default of an argument or a field, called on an object (a subclass may answer), called as
# just that definition, a subclass built, a base class, asked for with isinstance, compared, used otherwise; and of a
# class the slot of a spec that names it.
HOWS = NAMED, DEFAULT, CALLED, EXACT, DERIVED, BASE, ASKED, COMPARED, USED, SLOT = "sacedbiqvl"


class Model:
    """The facts and uses of one version; both may be read lazily."""

    def __init__(
        self,
        library: Library,
        label: str,
        facts: Mapping[str, Fact],
        uses: Mapping[str, tuple[Usage, ...]],
        names: Callable[[], NameIndex] | None = None,
    ) -> None:
        """Without `names` those of the facts are taken; they may be more than these: what it has not is left out."""
        self.library, self.label = library, label
        self.facts, self._uses, self._index = facts, uses, names
        self._found: dict[str, Known | None] = {}
        self._lineages: dict[str, tuple[str, ...]] = {}

    def __repr__(self) -> str:
        return f"Model({self.library.distribution} {self.label})"

    # --- names -------------------------------------------------------------------------------------------------

    def find(self, name: str, hops: int = 0) -> Known | None:
        """The definition behind a dotted name, through re-exports and base classes; None where there is none."""
        if name not in self._found:
            if hops > _MOST_HOPS:
                return None
            self._found[name] = self._find(name, hops)
        return self._found[name]

    def _find(self, name: str, hops: int) -> Known | None:
        fact = self.facts.get(name)
        if fact is not None and fact.kind == "import":
            inside = self.library.holds(fact.detail) and fact.detail != name
            return self.find(fact.detail, hops + 1) if inside else Known(name, fact)
        if fact is not None and fact.kind == "value" and (other := fact.trait("alias")) and other != name:
            return self.find(other, hops + 1) or Known(name, fact)
        if fact is not None:
            return Known(name, fact)
        owner_name, _, leaf = name.rpartition(".")
        owner = self.find(owner_name, hops + 1) if self.library.holds(owner_name) else None
        if owner is None:
            return None
        if owner.name != owner_name:
            return self.find(f"{owner.name}.{leaf}", hops + 1)
        if owner.fact.kind == "class":
            inherited = (self.facts.get(f"{base}.{leaf}") for base in self.lineage(owner_name)[1:])
            where = zip(self.lineage(owner_name)[1:], inherited, strict=True)
            return next((Known(f"{base}.{leaf}", fact) for base, fact in where if fact is not None), None)
        star = self.facts.get(f"{owner_name}.*")
        return self.find(f"{star.detail.removesuffix('*')}{leaf}", hops + 1) if star else None

    def function(self, name: str) -> Known | None:
        """The function behind a name; of a class its constructor, where it has one."""
        known = self.find(name)
        if known is not None and known.fact.kind == "class":
            known = self.find(f"{known.name}.__init__")
        return known if known is not None and known.fact.kind == "function" else None

    def called_with(self, name: str) -> Parameters | None:
        """What a call of a name takes, the object itself left out; None where that is not evident."""
        known = self.find(name)
        if known is not None and known.fact.kind == "class":
            return self._constructor(known.name)
        if known is None or known.fact.kind != "function":
            return None
        by = known.fact.trait("by")
        if (other := known.fact.trait("whole")) and (by is None or "signature" in by):  # it hands on all that it gets
            return self.called_with(other)
        if by is not None:
            return None
        return parameters(self.detail_for_callers(known))

    def detail_for_callers(self, known: Known) -> str:
        """The parameter list of a function as its callers see it."""
        owner = self.facts.get(known.name.rpartition(".")[0])
        bound = owner is not None and owner.kind == "class" and known.fact.trait("static") is None
        return without_self(known.fact.detail) if bound else known.fact.detail

    def _constructor(self, name: str) -> Parameters | None:
        fields: dict[str, str] = {}
        lineage = self.lineage(name)
        for base in reversed(lineage):
            fact = self.facts.get(base)
            if fact is None:
                if base.rpartition(".")[2] not in ("object", "ABC", "Generic", "Protocol"):
                    fields = {"**": "**outside"}  # what a class from outside takes is not known
                continue
            own = self.facts.get(f"{base}.__init__")
            if own is not None and own.kind == "function":
                fields = {"": without_self(own.detail)}
            elif fact.trait("dataclass") is not None:
                fields = {} if "" in fields or "**" in fields else fields
                for word in filter(None, (fact.trait("fields") or "").split(",")):
                    fields[word.partition("=")[0]] = word
        if self.find(f"{name}.__new__") is not None or "**" in fields:
            return None
        return parameters(fields[""] if "" in fields else " ".join(fields.values()))

    # --- classes -----------------------------------------------------------------------------------------------

    def lineage(self, name: str) -> tuple[str, ...]:
        """A class and its bases, nearest first; bases outside of the library as they are written."""
        if name not in self._lineages:
            self._lineages[name] = (name,)  # what a cycle gets to see
            found = [name]
            fact = self.facts.get(name)
            module = name.rpartition(".")[0]
            for text in fact.detail.split() if fact is not None and fact.kind == "class" else ():
                known = self.find(f"{module}.{text}")
                found += self.lineage(
                    text if known is None else known.fact.detail if known.fact.kind == "import" else known.name
                )
            # A class that several bases share stands behind all of them, as in Python's own order.
            self._lineages[name] = tuple(dict.fromkeys(reversed(found)))[::-1]
        return self._lineages[name]

    @cached_property
    def derived(self) -> dict[str, list[str]]:
        """The classes that derive from a class, directly or not."""
        found: dict[str, list[str]] = {}
        for name in self._names.classes(self.facts):
            for base in self.lineage(name)[1:]:
                found.setdefault(base, []).append(name)
        return found

    def members(self, name: str) -> Iterator[tuple[str, Fact]]:
        """What a class or module binds itself."""
        for member in self._names.within(name):
            if (fact := self.facts.get(member)) is not None:
                yield member.rpartition(".")[2], fact

    def ending(self, leaf: str) -> Sequence[str]:
        """The names whose last part is that."""
        return self._names.ending(leaf)

    @cached_property
    def _names(self) -> NameIndex:
        return NameIndex(self.facts) if self._index is None else self._index()

    @cached_property
    def imported(self) -> frozenset[str]:
        """The names that some module imports, as it says them."""
        return frozenset(fact.detail for fact in self.facts.values() if fact.kind == "import")

    # --- uses --------------------------------------------------------------------------------------------------

    def uses(self, name: str) -> tuple[Usage, ...]:
        """How the library uses a name of its own."""
        return self._uses.get(name, ())

    def calls(self, name: str) -> list[Usage]:
        """Every form in which the library calls a function: of a method also through base classes and subclasses."""
        known = self.find(name)
        owner, _, leaf = name.rpartition(".")
        holder = self.find(owner)
        if name in self.facts and self.facts[name].kind == "import":  # only those who have it from there
            return sorted(self._through(name), key=lambda usage: (not usage.sure, usage.place))
        usages = [usage for usage in self.uses(known.name if known else name) if usage.call is not None]
        if holder is not None and holder.fact.kind == "class":
            mine = known or Known(name, Fact("function"))
            for base in self.lineage(holder.name):
                if f"{base}.{leaf}" != mine.name:
                    usages += [usage for usage in self._answered(f"{base}.{leaf}") if self._reaches(usage, holder.name)]
            for sub in self.derived.get(holder.name, ()):
                if self.find(f"{sub}.{leaf}") == known:
                    usages += self._answered(f"{sub}.{leaf}")
        return sorted(usages, key=lambda usage: (not usage.sure, usage.place))

    def _through(self, name: str, seen: frozenset[str] = frozenset()) -> list[Usage]:
        """The calls by a module's name for what another defines, and by those that import it from that module."""
        usages = [usage for usage in self.uses(name) if usage.call is not None]
        for other in self._names.ending(name.rpartition(".")[2]):
            if other not in seen and (fact := self.facts.get(other)) and (fact.kind, fact.detail) == ("import", name):
                usages += self._through(other, seen | {name})
        return usages

    def _answered(self, name: str) -> list[Usage]:
        return [usage for usage in self.uses(name) if usage.how == CALLED and usage.call is not None]

    def _reaches(self, usage: Usage, cls: str) -> bool:
        """Whether a call on a base class may be answered by a class, which may have a method in place of the caller."""
        caller, _, method = usage.place.rpartition(".")
        if caller not in self.lineage(cls):
            return True  # somebody else's call, on an object of the base class
        instead = self.find(f"{cls}.{method}")
        return instead is None or instead.name == usage.place

    # --- what became of a name ---------------------------------------------------------------------------------

    def moved(self, name: str, before: Fact, old: Model) -> str | None:
        """Where a name of an older version lives now: the same name elsewhere, or much the same body beside it."""
        owner, _, leaf = name.rpartition(".")
        is_method = before.kind != "value" and owner.rpartition(".")[2][:1].isupper()
        tail = "." + ".".join(name.split(".")[-2 if is_method else -1 :])
        leaves = self._names.ending(leaf) if before.kind in ("function", "class", "value") else ()
        others = [other for other in leaves if other != name and other.endswith(tail)]
        same = [other for other in others if (fact := self.facts.get(other)) and fact.kind == before.kind]
        if before.kind == "class":
            same = self._classes_like(name, same, old)
        if len(same) == 1:
            return same[0]
        if not before.statements:
            return None  # nothing to tell it by
        beside = [f"{owner}.{other}" for other, fact in self.members(owner) if fact.kind == before.kind == "function"]
        scored = [(likeness(before.statements, self.facts[other].statements), other) for other in same or beside]
        score, best = max(scored, default=(0.0, ""))
        return best if score >= _ALIKE else None

    def _classes_like(self, name: str, same: list[str], old: Model) -> list[str]:
        """Those of the same name that a class may be now; else those beside it that are new, and much like it.

        What tells: half of its methods by their names, or, where the class has the same name, a base in common.
        """
        owner, methods = name.rpartition(".")[0], old.methods(name)
        bases = {base.rpartition(".")[2] for base in old.lineage(name)[1:] if base in old.facts}
        below = [other for other in same if any(base.rpartition(".")[2] in bases for base in self.lineage(other)[1:])]
        beside = [f"{owner}.{other}" for other, fact in self.members(owner) if methods and fact.kind == "class"]
        fresh = [other for other in beside if old.find(other) is None]
        for some in (same, fresh):
            if like := [one for one in some if one in below or 2 * len(methods & self.methods(one)) >= len(methods)]:
                return like
        return []

    def methods(self, name: str) -> set[str]:
        """The public methods that a class defines itself."""
        return {member for member, fact in self.members(name) if fact.kind == "function" and member[:1] != "_"}


class NameIndex:
    """Dotted names by their first and last parts, so that nobody looks through all of them."""

    def __init__(self, names: Iterable[str], may_be_classes: Iterable[str] | None = None) -> None:
        self._all = names if may_be_classes is None else may_be_classes
        self._by_leaf: dict[str, list[str]] = {}
        self._by_owner: dict[str, list[str]] = {}
        for name in names:
            owner, _, leaf = name.rpartition(".")
            self._by_leaf.setdefault(leaf, []).append(name)
            self._by_owner.setdefault(owner, []).append(name)

    def ending(self, leaf: str) -> Sequence[str]:
        """The names whose last part is that."""
        return self._by_leaf.get(leaf, ())

    def within(self, owner: str) -> Sequence[str]:
        """The names that a module or class binds."""
        return self._by_owner.get(owner, ())

    def classes(self, facts: Mapping[str, Fact]) -> list[str]:
        """Those that are classes."""
        return [name for name in self._all if (fact := facts.get(name)) is not None and fact.kind == "class"]


def likeness(left: bytes, right: bytes) -> float:
    """How much two functions have in common, by the digests of their statements: 0 nothing, 1 everything."""
    return SequenceMatcher(None, split(left), split(right), autojunk=False).ratio()
