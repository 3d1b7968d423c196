"""How a library uses its own names, taken down place by place, and told name by name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from io import BytesIO
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import NamedTuple

from mcore_unpatch.building.attributes import slot_of
from mcore_unpatch.building.defined import Body, Defined
from mcore_unpatch.building.slots import SpecSlots
from mcore_unpatch.building.written import annotated
from mcore_unpatch.code.syntax import parameters
from mcore_unpatch.library.facts import How, Use
from mcore_unpatch.library.names import Namespace
from mcore_unpatch.library.signatures import Call

_MOST_CLASSES = 8  # that one attribute may hold
_MOST_CONDITIONS = 2  # that are said of calls of one form
# How, the form, whether it is sure -> places, each with the condition that it stands under.
_Seen = dict[tuple[How, Call | None, bool], list[tuple[str, str]]]


class Called(NamedTuple):
    """Something that an expression may call; exact: just that definition."""

    name: str
    how: How = How.EXACT
    sure: bool = True


class Notes:
    """The uses of every name, as they are taken down, and what an expression may call."""

    def __init__(self, names: Namespace, modules: Collection[Defined], slots: SpecSlots) -> None:
        self.names, self._slots = names, slots
        self._seen: dict[str, _Seen] = defaultdict(dict)
        self.loose: set[str] = set()  # attributes that are read from objects nobody knows
        self.texts: set[str] = set()  # words of strings
        self.read: set[str] = set()  # attributes of whatever object
        self.imported: set[str] = set()  # by `from` imports
        self.whole: list[tuple[str, How, str, Call]] = []  # what gets all that a method is given, how, by whom
        self._owners = _method_owners(names, [body.name for one in modules for body in one.bodies])
        bodies = ((module.name, body) for module in modules for body in module.bodies)
        # By class: its module, and the function.
        self._constructors = {body.owner: (name, body.node) for name, body in bodies if body.node.name == "__init__"}
        self.from_specs: set[tuple[str, str, Call]] = set()  # constructors, who calls them through a spec, and how

    def uses(self) -> dict[str, list[Use]]:
        """Each name with the ways in which it is used."""
        for name, how, place, given in self.whole:
            for call in [call for _, call, sure in self._seen.get(place, ()) if call is not None and sure]:
                self.note(name, how, place, call._replace(unpacked=given.unpacked))
        built = {name: seen for name, seen in self._seen.items() if name.endswith(".__init__")}
        for name, seen in built.items():  # who builds a class builds one of each of its bases
            exact = [(call, place) for (how, call, _), places in seen.items() if how == How.EXACT for place in places]
            places = [place for call, place in exact if (name, place[0], call) not in self.from_specs]
            owner = name.removesuffix(".__init__")
            places = [place for place in places if owner not in self.names.lineage(place[0].rpartition(".")[0])[1:]]
            if places:  # what a subclass hands on builds nothing
                self._seen[owner].setdefault((How.CALLED, None, True), []).extend(places)
            for base in self.names.lineage(owner)[1:]:
                if places and self.names.entry(base):
                    self._seen[base].setdefault((How.DERIVED, None, True), []).extend(places)
        found = {name: list(self._uses(name, seen)) for name, seen in self._seen.items()}
        for name, uses in self._slots.uses().items():
            found.setdefault(name, []).extend(uses)
        return found

    def _uses(self, name: str, seen: _Seen) -> Iterator[Use]:
        """Calls of one form, and other uses of one kind, are one use with one place: the one nearest to the definition.

        Of those who build a class it is the one that is used most. Each says how many classes and modules do it, in
        whatever form.
        """
        owner = name.rpartition(".")[0]
        users: dict[tuple[How, bool], set[str]] = defaultdict(set)
        for (how, call, _), places in seen.items():
            users[how, call is None].update(self._owner_of(place) for place, _ in places)
        for (how, call, sure), places in sorted(seen.items(), key=lambda item: (item[0][0], repr(item[0][1:]))):
            builds = call is None and how == How.CALLED
            near = [(not place.startswith(owner), -builds * self._weight(place), place) for place, _ in places]
            every = sorted({condition for _, condition in places})
            told = call is not None and "" not in every and len(every) <= _MOST_CONDITIONS
            told = told and len({condition.removeprefix("not ") for condition in every}) == len(every)  # not both ways
            only = " or ".join(every) if told else ""
            yield Use(how, min(near)[-1], call, sure, only, len(users[how, call is None]))

    def _weight(self, place: str) -> int:
        """In how many places the class is used that a method is of."""
        return sum(map(len, self._seen.get(self._owner_of(place), {}).values()))

    def _owner_of(self, place: str) -> str:
        return place if self.names.is_a(place, "m") else place.rpartition(".")[0]

    def note(
        self, name: str, how: How, place: str, call: Call | None = None, sure: bool = True, condition: str = ""
    ) -> None:
        """Take down one use."""
        self._seen[name].setdefault((how, call, sure), []).append((place, condition))

    def by_name(self, method: str) -> Iterator[Called]:
        """The method that one family of classes has under a name."""
        self.loose.add(method)
        if owner := self._owners.get(method):
            yield Called(f"{owner}.{method}", How.CALLED, False)

    def called(self, body: Body | None, call: ast.Call) -> list[str]:
        """The constructors that a call of a part of a spec reaches."""
        slot = slot_of(call)
        owner = body.owner if body is not None and slot else ""
        return [f"{name}.__init__" for name in self._slots.classes(owner, slot)] if owner else []

    def held(self, owner: str, attribute: str) -> list[str]:
        """The classes that an attribute of a class may hold."""
        found = self.names.find(f"{owner}.{attribute}")
        if found is None:
            return []
        name, entry = found
        if slot := entry.trait("slot"):
            named = self._slots.classes(name.rpartition(".")[0], slot)
            if 0 < len(named) <= _MOST_CLASSES:
                return named
        if several := entry.trait("several"):
            return several.split("|")
        if name != f"{owner}.{attribute}" and (own := self._given_to(owner, attribute)):
            return [own]
        told = (entry.trait(trait) or "" for trait in ("builds", "type"))
        return [cls for cls in told if cls and not cls.startswith("@")][:1]

    def _given_to(self, owner: str, attribute: str) -> str:
        """The class that a constructor says its argument of an attribute's name has, where a base class keeps that."""
        module, function = self._constructors.get(owner, ("", None))
        named = [arg for arg in parameters(function) if arg.arg == attribute] if function is not None else []
        texts = annotated(named[0].annotation) if named else []
        found = self.names.find(f"{module}.{texts[0]}") if len(texts) == 1 else None
        return found[0] if found is not None and found[1].letter == "c" else ""


def _method_owners(names: Namespace, functions: Iterable[str]) -> dict[str, str]:
    """Method names that one family of the library's classes has: the class at the root of that family."""
    owners: dict[str, list[str]] = defaultdict(list)
    for name in functions:
        owner, _, leaf = name.rpartition(".")
        if names.is_a(owner, "c") and not leaf.startswith("__") and leaf not in _COMMON:
            owners[leaf].append(owner)
    found = {}
    for method, classes in owners.items():
        root = next((cls for cls in classes if all(cls in names.lineage(other) for other in classes)), None)
        if root is not None:
            found[method] = root
    return found


# Methods that objects from outside of the library have too.
_OTHERS: tuple[type, ...] = (dict, list, set, str, bytes, int, Thread, Queue, BytesIO, Path)
# Python 3.13 and 3.14 gave these to paths and queues: a release reads the same on every Python.
_NEWER = {"copy_into", "from_uri", "full_match", "info", "move", "move_into", "parser", "shutdown"}
_OF_OTHERS = {name for other in _OTHERS for name in dir(other) if not name.startswith("_")} - _NEWER
_COMMON = _OF_OTHERS | {"forward", "backward", "apply", "step", "state_dict", "to", "size", "walk"}
