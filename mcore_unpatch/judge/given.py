"""What a repository hands to Megatron: the classes that its specs name, and those that it uses as a value at all."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property

from mcore_unpatch.library.definitions import Body
from mcore_unpatch.library.model import ASKED, BASE, CALLED, Model, Usage
from mcore_unpatch.library.slots import Slots
from mcore_unpatch.library.surroundings import roles_of
from mcore_unpatch.library.syntax import Function, Nodes, dotted
from mcore_unpatch.megatron import api, slots
from mcore_unpatch.scanner.sources.parsing import Unreadable

_CLASS = re.compile(rb"^[ \t]*class[ \t]+(\w+)[ \t]*(?:\(([^)]*)\))?[ \t]*:", re.MULTILINE)
_SPECS = re.compile(rb"Submodules|ModuleSpec|\bsubmodules\b")
_SOME = "?"  # in place of the `...Submodules` of a slot of which only the field is told


class Given:
    """The classes of a repository, and what becomes of them."""

    def __init__(self, paths: Sequence[str], read: Callable[[str], bytes], tree: Callable[[str], ast.Module]) -> None:
        self._paths, self._read, self._tree = paths, read, tree

    def own_slots(self, name: str) -> list[str]:
        """The slots of specs in which a class is named."""
        return self._slots.get(name, [])

    def slots(self, name: str) -> set[str]:
        """The slots of specs in which a class is named, or one that derives from it."""
        return {slot for one in self._family(name) for slot in self.own_slots(one)}

    def may_reach(self, name: str) -> bool:
        """Whether Megatron may get a class that no spec is seen to name: it is a value, or nobody here builds it."""
        family = self._family(name)
        roles = [role for path in self._naming(family) for role in _roles(self._tree(path), family)]
        return "" in roles or CALLED not in roles

    def replaces(self, owner: str, method: str) -> bool:
        """Whether a class here that derives from one of Megatron's has a method of its own."""
        family = self._family(owner.rpartition(".")[2]) - {owner.rpartition(".")[2]}
        bodies = (node.body for path in self._naming(family) for node in ast.walk(self._tree(path))
                  if isinstance(node, ast.ClassDef) and node.name in family)  # fmt: skip
        return any(isinstance(item, Function) and item.name == method for body in bodies for item in body)

    def _family(self, name: str) -> set[str]:
        """A class and those that derive from it, by their short names."""
        found, waiting = {name}, [name]
        for base in waiting:
            fresh = self._derived.get(base, set()) - found
            found |= fresh
            waiting += fresh
        return found

    @cached_property
    def _files(self) -> dict[str, bytes]:
        """The files that define a class or make a spec."""
        every = ((path, self._read(path)) for path in self._paths)
        return {path: data for path, data in every if b"class " in data or _SPECS.search(data)}

    @cached_property
    def _derived(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for data in self._files.values():
            for name, bases in _CLASS.findall(data):
                found.setdefault(name.decode(), set())
                for base in re.findall(rb"\w+(?=\s*(?:,|\[|$))", bases):
                    found.setdefault(base.decode(), set()).add(name.decode())
        return found

    def _naming(self, names: set[str]) -> Iterator[str]:
        """The files that say one of some names, and that can be read."""
        says = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in sorted(names)).encode())
        for path in self._paths:
            if says.search(self._read(path)):
                try:
                    self._tree(path)
                except (Unreadable, OSError, RecursionError):
                    continue
                yield path

    @cached_property
    def _slots(self) -> dict[str, list[str]]:
        trees = [self._tree(path) for path in self._naming({"Submodules", "ModuleSpec", "submodules"})]
        filled = Slots(map(_SpecFile, trees), self._derived).filled
        for tree in trees:
            for node in ast.walk(tree):
                if isinstance(node, ast.Assign) and (field := _field(dotted(node.targets[0]))):
                    name = dotted(node.value).rpartition(".")[2]
                    filled.setdefault(name, []).append(f"{_SOME}.{field}")
        return filled


class _SpecFile:
    """A file that makes specs, as the specs of a library are read."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.classes = [(node.name, node) for node in tree.body if isinstance(node, ast.ClassDef)]
        outer = set(map(id, tree.body))
        every = (node for node in ast.walk(tree) if isinstance(node, Function))
        self.functions = [Body(node.name, "" if id(node) in outer else "?", node) for node in every]


def _field(target: str) -> str:
    """The field that `spec.submodules.field = ...` or `spec.submodules.field.module = ...` fills."""
    *before, holder, field = ("", *target.removesuffix(".module").split("."))
    return field if holder == "submodules" and before else ""


def _roles(tree: ast.Module, names: set[str]) -> Iterator[str]:
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


def building(slot: str, model: Model) -> list[Usage]:
    """The calls with which a release builds what a slot names."""
    exact = [slot] if not slot.startswith(_SOME) else _with_field(slot.removeprefix(_SOME))
    calls = ((one, usage) for one in exact for name in _named_in(one) for usage in model.uses(name))
    of_specs = (usage for one, usage in calls if usage.call and usage.call.double_star and is_holder(usage.place, one))
    return list(dict.fromkeys(of_specs))


@cache
def _with_field(field: str) -> list[str]:
    """The slots of any holder with a field, which begins with a dot."""
    return sorted({slot for own in slots.table().values() for slot in own if slot.endswith(field)})


@cache
def _named_in(slot: str) -> tuple[str, ...]:
    """The constructors of the classes that Megatron's own specs name in a slot and in no other of its holder."""
    holder = f"{slot.partition('.')[0]}."
    names = [name for name, own in slots.table().items() if [one for one in own if one.startswith(holder)] == [slot]]
    return tuple(f"{full}.__init__" for name in names for full in api.classes(name))


def is_holder(place: str, slot: str) -> bool:
    """Whether a method is one of the class whose `...Submodules` a slot belongs to."""
    holder, owner = slot.partition(".")[0], place.split(".")[-2:][0]
    return holder in (_SOME, f"{owner}Submodules", f"{owner.removesuffix('Layer')}Submodules")
