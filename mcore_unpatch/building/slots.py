"""Which classes the specs of a library name, and where.

A slot is a field of a `...Submodules` dataclass, or `module` of a layer's ModuleSpec. Read from calls, through
variables, helper functions and the providers of backends.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from mcore_unpatch.building.defined import Defined
from mcore_unpatch.code.module import scope_of
from mcore_unpatch.code.syntax import last_name, walk
from mcore_unpatch.library.facts import How, Use

_DEEPEST = 6  # calls and variables on the way from a slot to a class
_AROUND = {"partial": 0, "not_none": 0, "cast": 1, "replace": 0}  # which argument is the class
_FIELDS = "Submodules"
_Scope = Any  # a function, or the module


class SpecSlots:
    """The spec functions of one version."""

    def __init__(self, modules: Iterable[Defined]) -> None:
        self._homes: dict[str, list[str]] = defaultdict(list)  # by the short name
        self._functions: dict[str, list[_Scope]] = defaultdict(list)
        self._provided: dict[str, list[_Scope]] = defaultdict(list)
        self._filled_with: list[tuple[str, ast.expr, _Scope]] = []
        self._assigned: dict[_Scope, dict[str, list[ast.expr]]] = {}
        for module in modules:
            bodies = {body.node for body in module.bodies}
            for name, node in module.classes:
                self._take_class(name, node, module.module.tree)
            for body in module.bodies:
                if isinstance(body.node, ast.FunctionDef) and not body.owner:
                    self._functions[body.node.name].append(body.node)
            for call in module.module.calls:
                if (owner := last_name(call.func)).endswith(_FIELDS):
                    scope = scope_of(call)
                    while scope.parent is not None and scope.node not in bodies:
                        scope = scope.parent
                    given = ((word.arg, word.value) for word in call.keywords if word.arg is not None)
                    self._filled_with += [(f"{owner}.{field}", value, scope.node) for field, value in given]

    def classes(self, owner: str, field: str) -> list[str]:
        """The classes that specs name for a field of the `...Submodules` of a class."""
        short = owner.rpartition(".")[2]
        for holder in (f"{short}{_FIELDS}", f"{short.removesuffix('Layer')}{_FIELDS}"):
            if named := [name for name, slots in self.filled.items() if f"{holder}.{field}" in slots]:
                return sorted({name for short in named for name in self._homes[short][:1]})
        return []

    @cached_property
    def filled(self) -> dict[str, list[str]]:
        """The slots of each class that is named, by its short name, the most used first."""
        counters: dict[str, Counter[str]] = defaultdict(Counter)
        for slot, value, scope in self._filled():
            for name in self._named(value, scope):
                counters[name][slot] += 1
        return {name: sorted(slots, key=lambda slot: (-slots[slot], slot)) for name, slots in sorted(counters.items())}

    def uses(self) -> dict[str, list[Use]]:
        """Each class that is named, with its slots, the most used first."""
        named = [(name, slots) for short, slots in self.filled.items() for name in self._homes[short][:1]]
        return {name: [Use(How.SLOT, slot) for slot in slots] for name, slots in named}

    def _take_class(self, name: str, node: ast.ClassDef, tree: ast.Module) -> None:
        self._homes[node.name].append(name)
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and node.name.endswith(_FIELDS):
                if item.value is not None:
                    self._filled_with.append((f"{node.name}.{item.target.id}", item.value, tree))
            elif isinstance(item, ast.FunctionDef) and node.name.endswith("SpecProvider"):
                self._provided[item.name].append(item)

    def _filled(self) -> Iterator[tuple[str, ast.expr, _Scope]]:
        yield from self._filled_with
        for name, functions in self._functions.items():
            if name.startswith("get_") and "layer" in name and "spec" in name:
                for function in functions:
                    for value in _returned(function):
                        if isinstance(value, ast.Call) and last_name(value.func) == "ModuleSpec":
                            yield "ModuleSpec.module", value, function

    def _named(self, node: ast.expr, scope: _Scope, depth: int = 0) -> set[str]:
        """The classes that an expression may be, or be a spec of."""
        several: list[tuple[ast.expr, _Scope]] = []
        match node:
            case ast.Name(id=name) | ast.Attribute(value=ast.Name(id=name)) if name in self._homes:
                return {name}  # itself, or a classmethod that builds it
            case ast.Attribute(value=ast.Call() as call):
                several = [(call, scope)]
            case ast.Name(id=name):
                several = [(value, scope) for value in self._set_to(name, scope)] or self._built(name)
            case ast.IfExp():
                several = [(node.body, scope), (node.orelse, scope)]
            case ast.BoolOp():
                several = [(value, scope) for value in node.values]
            case ast.Tuple(elts=[first, *_]):
                several = [(first, scope)]  # the class, then its submodules
            case ast.Call() if last_name(node.func) == "ModuleSpec":
                several = [(word.value, scope) for word in node.keywords if word.arg == "module"]
            case ast.Call() if (index := _AROUND.get(last_name(node.func))) is not None:
                several = [(value, scope) for value in node.args[index : index + 1]]
            case ast.Call(func=ast.Attribute(attr=name)) if name in self._provided:
                several = [(value, method) for method in self._provided[name] for value in _returned(method)]
            case ast.Call(func=ast.Name(id=name)):
                several = [(value, other) for other in self._functions.get(name, []) for value in _returned(other)]
        if depth == _DEEPEST:
            return set()
        return {name for value, where in several for name in self._named(value, where, depth + 1)}

    def _built(self, name: str) -> list[tuple[ast.expr, _Scope]]:
        """What a function that stands in a slot makes an object of."""
        made = [(value, other) for other in self._functions.get(name, []) for value in _returned(other)]
        return [(value.func, other) for value, other in made if isinstance(value, ast.Call)]

    def _set_to(self, name: str, scope: _Scope) -> list[ast.expr]:
        """What a variable of a function, or the first of several that are unpacked, is set to."""
        if scope not in self._assigned:
            found = self._assigned.setdefault(scope, {})
            for node in (one for one in walk(scope) if isinstance(one, ast.Assign)):
                for target in node.targets:
                    first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
                    if isinstance(first, ast.Name):
                        found.setdefault(first.id, []).append(node.value)
        return self._assigned[scope].get(name, [])


def _returned(function: _Scope) -> list[ast.expr]:
    return [node.value for node in walk(function) if isinstance(node, ast.Return) and node.value is not None]
