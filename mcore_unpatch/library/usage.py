"""How a library uses its own names: each call with its form, what specs and defaults name, what is asked by class."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import NamedTuple

from mcore_unpatch.library import surroundings
from mcore_unpatch.library.definitions import Body, ModuleFacts, slot_of
from mcore_unpatch.library.fact import Call
from mcore_unpatch.library.model import CALLED, DERIVED, EXACT, USED, Model, Usage
from mcore_unpatch.library.slots import Slots
from mcore_unpatch.library.surroundings import first_given
from mcore_unpatch.library.syntax import Nodes, annotated, default_text, dotted, names_in

_MOST_CLASSES = 8  # that one attribute may hold
_MOST_CONDITIONS = 2  # that are said of calls of one form
_WORD = re.compile(r"[^\W\d]\w*")
# How, the form, whether it is sure -> places, each with the condition that it stands under.
_Seen = dict[tuple[str, Call | None, bool], list[tuple[str, str]]]


class _Where(NamedTuple):
    """Where an expression stands."""

    module: ModuleFacts
    body: Body | None
    local: dict[str, str]
    place: str
    nodes: Nodes
    conditions: dict[int, str]  # the plain ones, by the calls that they stand around

    def name(self, path: str) -> str:
        """What a dotted path means here; empty for an object of the function's own."""
        root, _, rest = path.partition(".")
        start = self.local.get(root, f"{self.module.name}.{root}")
        return f"{start}.{rest}".rstrip(".") if start else ""


class UseCollector:
    """The uses of every name, collected module by module."""

    def __init__(self, model: Model, slots: Slots) -> None:
        self._model, self._slots = model, slots
        self._seen: dict[str, _Seen] = defaultdict(dict)
        self.loose: set[str] = set()  # attributes that are read from objects nobody knows
        self.texts: set[str] = set()  # words of strings
        self.readers: dict[str, set[str]] = defaultdict(set)  # of attributes of whatever object: classes, functions
        self._whole: list[tuple[str, str, str, Call]] = []  # what gets all that a method is given, how, by whom
        self.given: dict[str, set[tuple[str, str]]] = defaultdict(set)  # by function: keywords and their plain values
        self._owners = _method_owners(model)
        self._constructors: dict[str, tuple[str, ast.arguments]] = {}  # by class: its module, and what it is given
        self._from_specs: set[tuple[str, str, Call]] = set()  # constructors, who calls them through a spec, and how

    def take(self, module: ModuleFacts) -> None:
        """Collect what one module uses."""
        bodies = {body.node for body in module.functions}
        for body in module.functions:
            if body.node.name == "__init__":
                self._constructors[body.owner] = module.name, body.node.args
        self._collect(Nodes([module.tree], stop=bodies), module, None, {})
        for body in module.functions:
            self._collect(body.nodes, module, body, surroundings.local_names(body, module.package))

    def result(self) -> dict[str, tuple[Usage, ...]]:
        """Each name with the ways in which it is used."""
        for name, how, place, given in self._whole:
            for call in [call for _, call, sure in self._seen.get(place, ()) if call is not None and sure]:
                self._note(name, how, place, replace(call, unpacked=given.unpacked))
        built = {name: seen for name, seen in self._seen.items() if name.endswith(".__init__")}
        for name, seen in built.items():  # who builds a class builds one of each of its bases
            exact = [(call, place) for (how, call, _), places in seen.items() if how == EXACT for place in places]
            places = [place for call, place in exact if (name, place[0], call) not in self._from_specs]
            owner = name.removesuffix(".__init__")
            places = [place for place in places if owner not in self._model.lineage(place[0].rpartition(".")[0])[1:]]
            if places:  # what a subclass hands on builds nothing
                self._seen[owner].setdefault((CALLED, None, True), []).extend(places)
            for base in self._model.lineage(owner)[1:]:
                if places and base in self._model.facts:
                    self._seen[base].setdefault((DERIVED, None, True), []).extend(places)
        found = {name: list(self._usages(name, seen)) for name, seen in self._seen.items()}
        for name, usages in self._slots.usages().items():
            found.setdefault(name, []).extend(usages)
        return {name: tuple(usages) for name, usages in found.items()}

    def _usages(self, name: str, seen: _Seen) -> Iterator[Usage]:
        """Calls of one form, and other uses of one kind, are one use with one place: the one nearest to the definition.

        Of those who build a class it is the one that is used most. Each says how many classes and modules do it, in
        whatever form.
        """
        owner = name.rpartition(".")[0]
        users: dict[tuple[str, bool], set[str]] = defaultdict(set)
        for (how, call, _), places in seen.items():
            users[how, call is None].update(self._owner_of(place) for place, _ in places)
        for (how, call, sure), places in sorted(seen.items(), key=lambda item: (item[0][0], repr(item[0][1:]))):
            builds = call is None and how == CALLED
            near = [(not place.startswith(owner), -builds * self._weight(place), place) for place, _ in places]
            every = sorted({condition for _, condition in places})
            told = call is not None and "" not in every and len(every) <= _MOST_CONDITIONS
            told = told and len({condition.removeprefix("not ") for condition in every}) == len(every)  # not both ways
            only = " or ".join(every) if told else ""
            yield Usage(how, min(near)[-1], len(users[how, call is None]), call, sure, only)

    def _weight(self, place: str) -> int:
        """In how many places the class is used that a method is of."""
        return sum(map(len, self._seen.get(self._owner_of(place), {}).values()))

    def _owner_of(self, place: str) -> str:
        fact = self._model.facts.get(place)
        return place if fact is not None and fact.kind == "module" else place.rpartition(".")[0]

    # --- one body ----------------------------------------------------------------------------------------------

    def _collect(self, nodes: Nodes, module: ModuleFacts, body: Body | None, local: dict[str, str]) -> None:
        place = body.name if body is not None else module.name
        conditions = surroundings.conditions_of(nodes, surroundings.parameters_given(body))
        where = _Where(module, body, local, place, nodes, conditions)
        roles, unpacked = surroundings.roles_of(nodes), surroundings.unpacked_counts(nodes)
        for node in nodes.of(ast.Call):
            self._call(node, roles, unpacked, where)
        parts: set[int] = set()  # of a longer dotted name
        for node in nodes.of(ast.Attribute):
            if type(node.ctx) is ast.Load:
                self.readers[node.attr].add(body.owner or body.name if body is not None else module.name)
            if id(node) not in parts:
                self._read(node, roles.get(id(node), USED), parts, where)
        for node in nodes.of(ast.Name):
            if local.get(node.id) != "" and type(node.ctx) is ast.Load and id(node) not in parts:
                self._read(node, roles.get(id(node), USED), parts, where)
        alone = {id(node.value) for node in nodes.of(ast.Expr)}
        for node in nodes.of(ast.Constant):
            if isinstance(text := node.value, str) and id(node) not in alone:
                if "import" in text or not any(map(str.isspace, text.strip())):
                    self.texts.update(_WORD.findall(text))

    def _note(
        self, name: str, how: str, place: str, call: Call | None = None, sure: bool = True, condition: str = ""
    ) -> None:
        self._seen[name].setdefault((how, call, sure), []).append((place, condition))

    def _read(self, node: ast.Attribute | ast.Name, how: str, parts: set[int], where: _Where) -> None:
        inner: ast.expr = node
        words: list[str] = []
        while inner.__class__ is ast.Attribute:
            words.append(inner.attr)
            inner = inner.value
            parts.add(id(inner))
        if inner.__class__ is not ast.Name:
            parts.discard(id(inner))
            self.loose.add(words[0])
            return
        root = inner.id
        start = where.local.get(root, f"{where.module.name}.{root}")
        place = where.place
        if not start:  # an object of the function's own; what `self` has is no name of a module
            self.loose.update(words[:-1] if root == first_given(where.body) else words)
            return
        held = self._model.find(start)
        if start in self._model.facts and (held is None or held.fact.kind == "module"):
            self._note(start, USED, place)  # a module, or imported from what the source lacks
        prefixes = [start]
        for word in reversed(words):
            prefixes.append(f"{prefixes[-1]}.{word}")
        for prefix in prefixes:
            known = self._model.find(prefix)
            if known is not None and known.fact.kind != "module":
                way = how if prefix == prefixes[-1] else USED
                if way == CALLED and known.fact.kind in ("value", "import"):
                    way = USED  # of calls, those of functions and classes are told apart
                if way and known.name != place.rpartition(".")[0]:  # a class that names itself tells nothing
                    if way != CALLED:
                        self._note(known.name, way, place)
                    if prefix == start and start != known.name and way != CALLED and self._model.library.holds(start):
                        self._note(start, way, place)

    def _call(self, node: ast.Call, roles: surroundings.ById, unpacked: dict[int, int], where: _Where) -> None:
        place = where.place
        path = dotted(node.func)
        leaf = path.rpartition(".")[2] or getattr(node.func, "attr", "")
        call, condition = form(node, unpacked.get(id(node), 0)), where.conditions.get(id(node), "")
        if alias := self._alias(path, where):
            self._note(alias, EXACT, place, call, condition=condition)
        by_spec, slot = leaf == "build_module" and bool(node.args), slot_of(node)
        if by_spec or slot:
            # A spec adds its submodules and parameters to what is passed.
            built = Call(call.positions - by_spec, call.keywords, call.star, double_star=True)
            owner = where.body.owner if where.body is not None and slot else ""
            for name in self._slots.classes(owner, slot) if owner else ():
                self._note(f"{name}.__init__", EXACT, place, built, condition=condition)
                self._from_specs.add((f"{name}.__init__", place, built))
            return
        if leaf == "apply" and (function := self._autograd(path.removesuffix(".apply"), where)):
            # Autograd calls its `forward`, a context first.
            applied = Call(call.positions + 1, call.keywords, call.star, call.double_star, call.unpacked)
            self._note(f"{function}.forward", EXACT, place, applied, condition=condition)
        for name, sure, how in self._called(path, node.func, where):
            self._note(name, how, place, call, sure, condition)
            if sure and call.star and call.double_star and surroundings.hands_all(node, where.body) and name != place:
                self._whole.append((name, how, place, call))
            if sure:
                values = ((word.arg, default_text(word.value).removeprefix("=")) for word in node.keywords)
                self.given[name].update((key, value) for key, value in values if key and value)

    def _alias(self, path: str, where: _Where) -> str:
        """The name of a module by which something is called that another one defines, if it is such a name."""
        name = where.name(path) if path else ""
        if "." in path:
            holder = self._model.find(name.rpartition(".")[0])
            if holder is None or holder.fact.kind != "module":
                return ""
            name = f"{holder.name}.{name.rpartition('.')[2]}"
        known = self._model.find(name) if name in self._model.facts else None
        return name if known is not None and known.name != name else ""

    def _called(self, path: str, function: ast.expr, where: _Where) -> Iterator[tuple[str, bool, str]]:
        """The functions that an expression may call, whether that is sure, and whether it is just that definition."""
        model, body = self._model, where.body
        if not path and isinstance(function, ast.Call) and len(function.args) == 1:
            path = dotted(function.args[0])  # `apply_module(self.router)(hidden)` calls what it is given
            if not path.startswith(f"{first_given(body)}."):
                return
        if not path:
            if isinstance(function, ast.Attribute):
                called = getattr(function.value, "func", None)
                if body is not None and body.owner and getattr(called, "id", "") == "super":
                    for base in model.lineage(body.owner)[1:]:
                        if f"{base}.{function.attr}" in model.facts:
                            yield f"{base}.{function.attr}", True, EXACT
                            return
                yield from self._by_name(function.attr)
            return
        root, _, rest = path.partition(".")
        first = first_given(body)
        if body is not None and body.owner and root == first and rest:
            yield from self._on_self(body.owner, rest)
            return
        start = where.local.get(root, f"{where.module.name}.{root}")
        if not start:
            if rest:
                yield from self._by_name(rest.rpartition(".")[2])
            else:
                yield from ((name, True, EXACT) for name in self._picked(root, where))
                yield from ((name, True, CALLED) for name in self._items(root, function.lineno, where))
            return
        known = model.find(f"{start}.{rest}" if rest else start)
        if known is None:
            if rest and (held := model.find(start)) is not None and held.fact.kind in ("value", "import"):
                yield from self._by_name(rest.rpartition(".")[2])
        elif known.fact.kind == "class":
            yield f"{known.name}.__init__", True, EXACT
        elif known.fact.kind == "function":
            yield known.name, True, EXACT

    def _picked(self, variable: str, where: _Where) -> Iterator[str]:
        """What a variable may call: classes that it is set to, or what a function gives that picks one of several."""
        values = [node.value for node in where.nodes.of(ast.Assign) if dotted(node.targets[0]) == variable]
        for value in (
            way for one in values for way in ((one.body, one.orelse) if isinstance(one, ast.IfExp) else (one,))
        ):
            path = dotted(value.func if isinstance(value, ast.Call) else value)
            known = self._model.find(where.name(path)) if path else None
            if known is not None and isinstance(value, ast.Call):
                yield from filter(None, (known.fact.trait("picks") or "").split("|"))
            elif known is not None and known.fact.kind == "class":
                yield f"{known.name}.__init__"

    def _items(self, variable: str, line: int, where: _Where) -> Iterator[str]:
        """What calls of a variable reach that runs over a list of modules: `for layer in self.layers`."""
        owner, first = (where.body.owner, first_given(where.body)) if where.body is not None else ("", "")
        loops = where.nodes.of(ast.For) if owner else ()
        for node in (loop for loop in loops if loop.lineno <= line <= loop.end_lineno):
            over = node.iter.args[0] if isinstance(node.iter, ast.Call) and node.iter.args else node.iter
            holder, _, attribute = dotted(over).partition(".")
            if variable in names_in(node.target) and holder == first:
                items = (self._model.library.items.get((one, attribute)) for one in self._model.lineage(owner))
                yield from (f"{item}.forward" for item in items if item is not None)

    def _on_self(self, owner: str, rest: str) -> Iterator[tuple[str, bool, str]]:
        """`self.method(...)`, `self.part(...)`, `self.part.method(...)`."""
        model = self._model
        head, _, tail = rest.partition(".")
        if not tail:
            known = model.find(f"{owner}.{head}")
            if known is None or known.fact.kind == "function":  # none: a subclass has it
                yield f"{owner}.{head}", True, CALLED
                return
            for name in self._held(owner, head):
                is_module = any(base.rpartition(".")[2].endswith("Module") for base in model.lineage(name)[1:])
                yield f"{name}.{'forward' if is_module else '__call__'}", True, CALLED
            return
        if "." not in tail:
            held = list(self._held(owner, head))
            for name in held:
                yield f"{name}.{tail}", True, CALLED
            if held:
                return
        yield from self._by_name(tail.rpartition(".")[2])

    def _held(self, owner: str, attribute: str) -> list[str]:
        """The classes that an attribute of a class may hold."""
        known = self._model.find(f"{owner}.{attribute}")
        if known is None:
            return []
        if slot := known.fact.trait("slot"):
            named = self._slots.classes(known.name.rpartition(".")[0], slot)
            if 0 < len(named) <= _MOST_CLASSES:
                return named
        if several := known.fact.trait("several"):
            return several.split("|")
        if known.name != f"{owner}.{attribute}" and (own := self._given_to(owner, attribute)):
            return [own]
        for trait in ("builds", "type"):
            if (name := known.fact.trait(trait)) and not name.startswith("@"):
                return [name]
        return []

    def _given_to(self, owner: str, attribute: str) -> str:
        """The class that a constructor says its argument of an attribute's name has, where a base class keeps that."""
        module, spec = self._constructors.get(owner, ("", None))
        named = [arg for arg in (*spec.args, *spec.kwonlyargs) if arg.arg == attribute] if spec is not None else []
        texts = annotated(named[0].annotation) if named else []
        known = self._model.find(f"{module}.{texts[0]}") if len(texts) == 1 else None
        return known.name if known is not None and known.fact.kind == "class" else ""

    def _autograd(self, path: str, where: _Where) -> str:
        """The function of autograd that a name of the library is, if it is one."""
        known = self._model.find(where.name(path))
        name = known.name if known is not None and known.fact.kind == "class" else ""
        is_one = any(base.rpartition(".")[2] == "Function" for base in self._model.lineage(name)) if name else False
        return name if is_one and f"{name}.forward" in self._model.facts else ""

    def _by_name(self, method: str) -> Iterator[tuple[str, bool, str]]:
        self.loose.add(method)
        if owner := self._owners.get(method):
            yield f"{owner}.{method}", False, CALLED


def form(node: ast.Call, unpacked: int = 0) -> Call:
    """The form of a call."""
    star = any(isinstance(arg, ast.Starred) for arg in node.args)
    positions = sum(not isinstance(arg, ast.Starred) for arg in node.args)
    keywords = tuple(word.arg for word in node.keywords if word.arg)
    return Call(positions, keywords, star, len(keywords) < len(node.keywords), unpacked)


def _method_owners(model: Model) -> dict[str, str]:
    """Method names that one family of the library's classes has: the class at the root of that family."""
    owners: dict[str, list[str]] = defaultdict(list)
    for name, fact in model.facts.items():
        if fact.kind == "function":
            owner, _, leaf = name.rpartition(".")
            holder = model.facts.get(owner)
            if holder is not None and holder.kind == "class" and not leaf.startswith("__"):
                owners[leaf].append(owner)
    found = {}
    for method, classes in owners.items():
        if method in _COMMON:
            continue
        root = next((cls for cls in classes if all(cls in model.lineage(other) for other in classes)), None)
        if root is not None:
            found[method] = root
    return found


# Methods that objects from outside of the library have too.
_OTHERS: tuple[type, ...] = (dict, list, set, str, bytes, int, Thread, Queue, BytesIO, Path)
# Python 3.13 and 3.14 gave these to paths and queues: a release reads the same on every Python.
_NEWER = {"copy_into", "from_uri", "full_match", "info", "move", "move_into", "parser", "shutdown"}
_OF_OTHERS = {name for other in _OTHERS for name in dir(other) if not name.startswith("_")} - _NEWER
_COMMON = _OF_OTHERS | {"forward", "backward", "apply", "step", "state_dict", "to", "size", "walk"}
