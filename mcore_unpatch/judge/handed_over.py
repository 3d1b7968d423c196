"""What a repository hands to Megatron: the classes that its specs name, and those that it uses as a value at all."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, cached_property

from mcore_unpatch.library.definitions import Body
from mcore_unpatch.library.model import ASKED, BASE, CALLED, Model, Usage
from mcore_unpatch.library.slots import Slots
from mcore_unpatch.library.surroundings import roles_of
from mcore_unpatch.library.syntax import Function, Nodes, dotted
from mcore_unpatch.megatron import api, slots
from mcore_unpatch.scanner.sources.parsing import Unreadable

_CLASS = re.compile(rb"^[ \t]*class[ \t]+(\w+)[ \t]*(?:\(([^)]*)\))?[ \t]*:", re.MULTILINE)
_SPECS = {r"\w*Submodules", "ModuleSpec", "submodules"}
_LAYER = "ModuleSpec.module"  # the slot of what a block builds


class HandedOver:
    """The classes of a repository, and what becomes of them."""

    def __init__(self, paths: Sequence[str], read: Callable[[str], bytes], tree: Callable[[str], ast.Module]) -> None:
        self._paths, self._read, self._tree = paths, read, tree
        self._read_as: dict[frozenset[str], set[str]] = {}

    def slots(self, names: frozenset[str], bases: Sequence[str]) -> tuple[list[str], bool]:
        """The slots in which Megatron finds one of some classes, and whether it is in each of them.

        Where no spec here names one, and it is handed on all the same, those of what it derives from.
        """
        if named := [slot for name in names for slot in self._specs.filled.get(name, ())]:
            return named, True
        own = _slots_of(tuple(bases))
        if fields := {field for name in names for field in self._fields.get(name, ())}:
            return [slot for slot in own if slot.partition(".")[2] in fields], False
        return (own if own and "" in self._roles(names) else []), False

    def may_reach(self, names: frozenset[str]) -> bool:
        """Whether Megatron may get classes of which nothing tells how: they are values, or nobody here builds them."""
        roles = self._roles(names)
        return "" in roles or CALLED not in roles

    def _roles(self, names: frozenset[str]) -> set[str]:
        if names not in self._read_as:
            every = (role for path in self._naming(names) for role in _roles(self._tree(path), names))
            self._read_as[names] = set(every)
        return self._read_as[names]

    def replaces(self, owner: str, method: str) -> bool:
        """Whether a class here that derives from one of Megatron's has a method of its own."""
        own = owner.rpartition(".")[2]
        family = self.family(own) - {own}
        bodies = (node.body for path in self._naming(family) for node in ast.walk(self._tree(path))
                  if isinstance(node, ast.ClassDef) and node.name in family)  # fmt: skip
        return any(isinstance(item, Function) and item.name == method for body in bodies for item in body)

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
        found: dict[str, set[str]] = {}
        for data in map(self._read, self._paths):
            for name, bases in _CLASS.findall(data):
                found.setdefault(name.decode(), set())
                for base in re.findall(rb"\w+(?=\s*(?:,|\[|$))", bases):
                    found.setdefault(base.decode(), set()).add(name.decode())
        return found

    def _naming(self, names: Collection[str]) -> Iterator[str]:
        """The files that say one of some names, and that can be read."""
        says = re.compile("|".join(rf"\b{name}\b" for name in sorted(names)).encode())
        for path in self._paths if names else ():
            if says.search(self._read(path)):
                try:
                    self._tree(path)
                except (Unreadable, OSError, RecursionError):
                    continue
                yield path

    @cached_property
    def _trees(self) -> list[ast.Module]:
        return [self._tree(path) for path in self._naming(_SPECS)]

    @cached_property
    def _specs(self) -> Slots:
        return Slots(map(_SpecFile, self._trees), self._derived)

    @cached_property
    def _fields(self) -> dict[str, list[str]]:
        """The classes that are put into a spec that is made: `spec.submodules.field = ...`, with `.module` or not."""
        found: dict[str, list[str]] = {}
        for node in (node for tree in self._trees for node in ast.walk(tree) if isinstance(node, ast.Assign)):
            *_, holder, field = ("", "", *dotted(node.targets[0]).removesuffix(".module").split("."))
            if holder == "submodules":
                found.setdefault(dotted(node.value).rpartition(".")[2], []).append(field)
        return found


class _SpecFile:
    """A file that makes specs, as the specs of a library are read."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.classes = [(node.name, node) for node in tree.body if isinstance(node, ast.ClassDef)]
        outer = set(map(id, tree.body))
        every = (node for node in ast.walk(tree) if isinstance(node, Function))
        self.functions = [Body(node.name, "" if id(node) in outer else "?", node) for node in every]


def _roles(tree: ast.Module, names: Collection[str]) -> Iterator[str]:
    """What classes are there for, each time that they are read: called, or nothing that is told, so as a value."""
    nodes = Nodes([tree])
    roles = roles_of(nodes)
    typed = (
        *(one.annotation for one in nodes.of(ast.arg, ast.AnnAssign)),
        *(one.returns for one in nodes.of(ast.FunctionDef, ast.AsyncFunctionDef)),
    )
    apart = {id(node) for root in typed if root is not None for node in ast.walk(root)}
    apart |= {id(node.value) for node in nodes.of(ast.Attribute)}
    apart |= {id(arg) for call in nodes.of(ast.Call) if getattr(call.func, "id", "") == "super" for arg in call.args}
    for node in nodes.of(ast.Name, ast.Attribute):
        name = node.id if isinstance(node, ast.Name) else node.attr
        role = roles.get(id(node), "")
        if name in names and isinstance(node.ctx, ast.Load) and id(node) not in apart and role not in (BASE, ASKED):
            yield CALLED if role == CALLED else ""


@cache
def _slots_of(bases: tuple[str, ...]) -> list[str]:
    """The slots in which Megatron's own specs name a class; none for a layer, as several build those."""
    found = [slot for name in bases for slot in slots.table().get(name.rpartition(".")[2], ())]
    return [] if _LAYER in found else list(dict.fromkeys(found))


def building(slot: str, model: Model) -> list[Usage]:
    """The calls with which a release builds what a slot names."""
    calls = (usage for name in _named_in(slot) for usage in model.uses(name) if is_holder(usage.place, slot))
    return list(dict.fromkeys(usage for usage in calls if usage.call is not None and usage.call.double_star))


@cache
def _named_in(slot: str) -> tuple[str, ...]:
    """The constructors of the classes that Megatron's own specs name in a slot and in no other of its holder."""
    holder = f"{slot.partition('.')[0]}."
    names = [name for name, own in slots.table().items() if [one for one in own if one.startswith(holder)] == [slot]]
    return tuple(f"{full}.__init__" for name in names for full in api.classes(name))


def is_holder(place: str, slot: str) -> bool:
    """Whether a method is one of the class whose `...Submodules` a slot belongs to."""
    holder, owner = slot.partition(".")[0], place.split(".")[-2:][0]
    return holder in (f"{owner}Submodules", f"{owner.removesuffix('Layer')}Submodules")
