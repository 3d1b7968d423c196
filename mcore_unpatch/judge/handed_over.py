"""What a repository hands to Megatron: the classes that its specs name, and those that it uses as a value at all."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, cached_property

from mcore_unpatch.judge.specs import is_spec
from mcore_unpatch.library.definitions import Body
from mcore_unpatch.library.model import ASKED, BASE, CALLED, COMPARED, Model, Usage
from mcore_unpatch.library.slots import Slots
from mcore_unpatch.library.surroundings import roles_of
from mcore_unpatch.library.syntax import Function, Nodes, dotted, last_attribute
from mcore_unpatch.megatron import api, slots
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.parsing import Unreadable

_CLASS = re.compile(rb"\n[ \t]*+class[ \t]++(\w++)[ \t]*+(?:\(([^)]*+)\))?[ \t]*+:")
_BASE = re.compile(rb"\w+(?=\s*(?:,|\[|$))")
_ALIAS, _AS = re.compile(rb"\b(\w+)[ \t]+as[ \t]+(\w+)"), re.compile(rb"as[ \t]+(\w+)")
_WORD = re.compile(rb"[A-Za-z_]\w*", re.ASCII)
_SPECS = ("Submodules", "ModuleSpec", "submodules")
_PARTS = (None, "module", "submodules")  # words of a spec itself
_LAYER = "ModuleSpec.module"  # the slot of what a block builds


class HandedOver:
    """The classes of a repository, and what becomes of them."""

    def __init__(self, paths: Sequence[str], read: Callable[[str], bytes], tree: Callable[[str], ast.Module]) -> None:
        self._paths, self._read, self._tree = paths, read, tree
        self._read_as: dict[str, set[tuple[str, str]]] = {}
        self._homes: dict[str, list[str]] = defaultdict(list)  # where each class is defined

    def slots(self, names: frozenset[str], bases: Sequence[str], model: Model) -> tuple[list[str], bool]:
        """The slots in which a release finds one of some classes, and whether it is in each of them.

        Where no spec here names one, and it is handed on, those of what it is put in the place of, or derives from.
        """
        if named := [slot for name in names for slot in self._specs.filled.get(name, ())]:
            return [slot for name in named if (slot := self._megatrons(name))], True
        stands = [slot for name in names for slot in self.stands_for.get(name, ())]
        own = _slots_of(tuple(theirs for theirs, _ in stands) or tuple(bases))
        if fields := {field for name in names for field in self._fields.get(name, ())}:
            parts = [path.partition(".") for path in fields]
            read = {field for field, _, part in parts if not part or is_spec(field, model)}
            return [slot for slot in own or _every_slot() if slot.partition(".")[2] in read], False
        return (own if own and "" in self._roles(names) else []), any(everywhere for _, everywhere in stands)

    def may_reach(self, names: frozenset[str]) -> bool:
        """Whether Megatron may get classes of which nothing tells how: they are values, or nobody here builds them."""
        roles = self._roles(names)
        return "" in roles or CALLED not in roles

    def _roles(self, names: frozenset[str]) -> set[str]:
        """What some classes are there for, wherever they are read."""
        roles: set[str] = set()
        for path, tree in self._naming(names):
            if path not in self._read_as:
                self._read_as[path] = {(name, role) for name, role in _roles(tree) if name in self._derived}
            roles |= {role for name, role in self._read_as[path] if name in names}
        return roles

    def replaces(self, owner: str, method: str) -> bool:
        """Whether a class here that derives from one of Megatron's has a method of its own."""
        return bool(self._hand_on(owner, method))

    def shuts_out(self, owner: str, method: str) -> bool:
        """Whether every such method does without the one that it replaces."""
        return self._hand_on(owner, method) == {False}

    @cache  # noqa: B019 - this lives as long as its command
    def _hand_on(self, owner: str, method: str) -> set[bool]:
        """What is true of the methods of a name in classes here that derive from one: they hand on to their base's."""
        own = owner.rpartition(".")[2]
        family = self.family(own) - ({own} - self._derived.get(own, set()))
        homes = dict.fromkeys(path for name in sorted(family) for path in self._homes[name])
        methods = (self._methods_in(path) for path in homes if method.encode() in self._read(path))
        return {on for some in methods for cls, name, on in some if name == method and cls in family}

    @cache  # noqa: B019
    def _methods_in(self, path: str) -> list[tuple[str, str, bool]]:
        """The methods of the classes in a file, and whether each hands on; their annotated fields, which do not."""
        classes = (cls for _, tree in self._trees([path]) for cls in walk(tree) if isinstance(cls, ast.ClassDef))
        items = [(cls.name, item) for cls in classes for item in cls.body]
        methods = [(cls, item.name, _hands_on(item)) for cls, item in items if isinstance(item, Function)]
        return methods + [
            (cls, item.target.id, False)
            for cls, item in items
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        ]

    def is_set_on(self, owner: str, name: str, path: str) -> bool:
        """Whether a file sets an attribute on objects that may be of a class: in no class, or in one akin to it."""
        nodes = list(ast.walk(self._tree(path)))
        stores = {id(one) for one in nodes if getattr(one, "attr", "") == name and isinstance(one.ctx, ast.Store)}  # type: ignore[attr-defined]
        akin = {cls for cls in self._derived if self.family(cls) & self.family(owner)}
        others = (node for node in nodes if isinstance(node, ast.ClassDef) and node.name not in akin)
        return not stores <= {id(part) for cls in others for part in ast.walk(cls)}

    def family(self, name: str) -> frozenset[str]:
        """A class and those that derive from it, by their short names."""
        found, waiting = {name}, [name]
        for base in waiting:
            fresh = self._derived.get(base, set()) - found
            found |= fresh
            waiting += fresh
        return frozenset(found)

    @cached_property
    def _derived(self) -> dict[str, set[str]]:
        """Every class that is defined here or derived from here, with what derives from it."""
        derived: dict[str, set[str]] = {}
        for path in self._paths:
            data = self._read(path)
            classes = [(name.decode(), _BASE.findall(bases)) for name, bases in _CLASS.findall(b"\n" + data)]
            every = {base for _, bases in classes for base in bases}
            renamed = every and b" as " in data and not every.isdisjoint(_AS.findall(data))
            named = {alias: name for name, alias in _ALIAS.findall(data)} if renamed else {}
            for name, bases in classes:
                derived.setdefault(name, set())
                self._homes[name].append(path)
                for base in bases:
                    derived.setdefault(named[base].decode() if base in named else base.decode(), set()).add(name)
        return derived

    @cached_property
    def _mentions(self) -> dict[str, list[str]]:
        """The files that say the name of a class, or a word of specs."""
        mentions: dict[str, list[str]] = {}
        for path in self._paths:
            for word in map(bytes.decode, set(_WORD.findall(self._read(path)))):
                if word in self._derived or word.endswith(_SPECS) or word in slots.table():
                    mentions.setdefault(word, []).append(path)
        return mentions

    def _naming(self, words: Iterable[str]) -> Iterator[tuple[str, ast.Module]]:
        """The files that say one of some words, and that can be read."""
        return self._trees(dict.fromkeys(path for word in sorted(words) for path in self._mentions.get(word, ())))

    def _trees(self, paths: Iterable[str]) -> Iterator[tuple[str, ast.Module]]:
        for path in paths:
            with suppress(Unreadable, OSError, RecursionError):
                yield path, self._tree(path)

    @cached_property
    def stands_for(self) -> dict[str, set[tuple[str, bool]]]:
        """The classes of Megatron's specs in whose place a class is put, and whether in all of their slots.

        `module.Theirs = Ours`; in all of them `Ours if test else Theirs`.
        """
        every = slots.table()
        meanings: dict[str, set[tuple[str, bool]]] = defaultdict(set)
        for node in (node for _, tree in self._naming(every) for node in walk(tree)):
            match node:
                case ast.Assign(targets=[ast.Attribute(attr=theirs)], value=ours) if theirs in every:
                    meanings[last_attribute(ours)].add((theirs, False))
                case ast.IfExp(body=body, orelse=other):
                    pairs = ((body, last_attribute(other)), (other, last_attribute(body)))
                    for ours, theirs in ((ours, theirs) for ours, theirs in pairs if theirs in every):
                        meanings[last_attribute(ours)].add((theirs, True))
        return meanings

    @cached_property
    def _files(self) -> list[_SpecFile]:
        return [_SpecFile(tree) for _, tree in self._naming(word for word in self._mentions if word.endswith(_SPECS))]

    @cached_property
    def _specs(self) -> Slots:
        return Slots(self._files, self._derived)

    def _megatrons(self, slot: str) -> str:
        """A slot as Megatron names it, where a dataclass of the repository has it from one of Megatron's."""
        holder, _, field = slot.partition(".")
        above = [base for base, derived in self._derived.items() if holder in derived]
        every = [slot, *(f"{base}.{field}" for base in above)]
        return next((candidate for candidate in every if candidate in _every_slot()), slot if not above else "")

    @cached_property
    def _fields(self) -> dict[str, list[str]]:
        """The classes that are put into a field by its name alone: of a spec that is made, or of any other call.

        `spec.submodules.field = ...`, with `.module` or not; `anything(field=ModuleSpec(module=...))`.
        """
        fields: dict[str, list[str]] = {}
        for file in self._files:
            for scope, nodes in file.scopes:
                targets = ((node.value, dotted(node.targets[0])) for node in nodes.of(ast.Assign))
                put = [(value, path.rpartition("submodules.")[2]) for value, path in targets if "submodules." in path]
                words = (word for call in nodes.of(ast.Call) for word in call.keywords if word.arg not in _PARTS)
                for value, path in (*put, *((word.value, word.arg or "") for word in words)):
                    for name in self._specs.named(value, scope):
                        fields.setdefault(name, []).append(path)
        return fields


class _SpecFile:
    """A file that makes specs, as the specs of a library are read."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.classes = [(node.name, node) for node in tree.body if isinstance(node, ast.ClassDef)]
        outer = set(map(id, tree.body))
        every = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        self.functions = [Body(node.name, "" if id(node) in outer else "?", node) for node in every]
        outside = [node for node in tree.body if not isinstance(node, Function | ast.ClassDef)]
        self.scopes: list[tuple[ast.FunctionDef | ast.Module, Nodes]] = [(tree, Nodes(outside))]
        self.scopes += zip(every, (body.nodes for body in self.functions), strict=True)


def _hands_on(method: Function) -> bool:
    """Whether a method calls the one of its name of another class: `super().f(...)`, `Base.f(self, ...)`."""
    asked = (node.value for node in walk(method) if isinstance(node, ast.Attribute) and node.attr == method.name)
    return any(not (isinstance(owner, ast.Name) and owner.id == "self") for owner in asked)


def _roles(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """What names are there for, each time that they are read: called, or nothing that is told, so as a value."""
    nodes = Nodes([tree])
    roles = roles_of(nodes)
    typed = (
        *(node.annotation for node in nodes.of(ast.arg, ast.AnnAssign)),
        *(node.returns for node in nodes.of(ast.FunctionDef, ast.AsyncFunctionDef)),
    )
    apart = {id(node) for root in typed if root is not None for node in ast.walk(root)}
    apart |= {id(node.value) for node in nodes.of(ast.Attribute)}
    apart |= {id(arg) for call in nodes.of(ast.Call) if getattr(call.func, "id", "") == "super" for arg in call.args}
    for node in nodes.of(ast.Name, ast.Attribute):
        name = node.id if isinstance(node, ast.Name) else node.attr
        role = roles.get(id(node), "")
        if isinstance(node.ctx, ast.Load) and id(node) not in apart and role not in (BASE, ASKED, COMPARED):
            yield name, CALLED if role == CALLED else ""


@cache
def _every_slot() -> dict[str, None]:
    return dict.fromkeys(sorted(slot for own in slots.table().values() for slot in own))


@cache
def _slots_of(bases: tuple[str, ...]) -> list[str]:
    """The slots in which Megatron's own specs name a class; none for a layer, as several build those."""
    held = [slot for name in bases for slot in slots.table().get(name.rpartition(".")[2], ())]
    return [] if _LAYER in held else list(dict.fromkeys(held))


def building(slot: str, model: Model) -> list[Usage]:
    """The calls with which a release builds what a slot names."""
    calls = (usage for name in _named_in(slot) for usage in model.uses(name) if is_holder(usage.place, slot))
    return list(dict.fromkeys(usage for usage in calls if usage.call is not None and usage.call.double_star))


@cache
def _named_in(slot: str) -> tuple[str, ...]:
    """The constructors of the classes that Megatron's own specs name in a slot and in no other of its holder."""
    holder = f"{slot.partition('.')[0]}."
    names = [name for name, own in slots.table().items() if [slot for slot in own if slot.startswith(holder)] == [slot]]
    return tuple(f"{full}.__init__" for name in names for full in api.classes(name))


def is_holder(place: str, slot: str) -> bool:
    """Whether a method is one of the class whose `...Submodules` a slot belongs to."""
    holder, owner = slot.partition(".")[0], place.split(".")[-2:][0]
    return holder in (f"{owner}Submodules", f"{owner.removesuffix('Layer')}Submodules")
