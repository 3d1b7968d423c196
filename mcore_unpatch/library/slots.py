"""Which classes the specs of a library name, and where.

A slot is a field of a `...Submodules` dataclass, or `module` of a layer's ModuleSpec. Read from calls, through
variables, helper functions and the providers of backends.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Protocol

from mcore_unpatch.library.definitions import Body
from mcore_unpatch.library.model import SLOT, Usage
from mcore_unpatch.library.syntax import Nodes, last_attribute

_DEEPEST = 6  # calls and variables on the way from a slot to a class
_AROUND = {"partial": 0, "not_none": 0, "cast": 1, "replace": 0}  # which argument is the class
_FIELDS = "Submodules"
_Scope = ast.FunctionDef | ast.Module


class SpecModule(Protocol):
    """What is asked of a module."""

    tree: ast.Module
    classes: list[tuple[str, ast.ClassDef]]
    functions: list[Body]


class Slots:
    """The spec functions of one version, or of a repository: then with the names of its classes."""

    def __init__(self, modules: Iterable[SpecModule], own: Iterable[str] = ()) -> None:
        self._homes: dict[str, list[str]] = defaultdict(list, {name: [name] for name in own})  # by the short name
        self._methods = not own  # of a repository a method that builds a class is no call of its constructor
        self._functions: dict[str, list[ast.FunctionDef]] = defaultdict(list)
        self._provided: dict[str, list[ast.FunctionDef]] = defaultdict(list)
        self._calls: list[tuple[ast.Call, _Scope]] = []
        self._defaults: list[tuple[str, str, ast.expr, _Scope]] = []
        for module in modules:
            for name, node in module.classes:
                self._take_class(name, node, module.tree)
            for body in module.functions:
                if isinstance(body.node, ast.FunctionDef):
                    if not body.owner:
                        self._functions[body.node.name].append(body.node)
                    self._take(body.nodes, body.node)
            kinds = ast.Assign | ast.AnnAssign | ast.If | ast.Try
            self._take(Nodes(node for node in module.tree.body if isinstance(node, kinds)), module.tree)

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
            for name in self.named(value, scope):
                counters[name][slot] += 1
        return {name: sorted(slots, key=lambda slot: (-slots[slot], slot)) for name, slots in sorted(counters.items())}

    def usages(self) -> dict[str, list[Usage]]:
        """Each class that is named, with its slots, the most used first."""
        named = [(name, slots) for short, slots in self.filled.items() for name in self._homes[short][:1]]
        return {name: [Usage(SLOT, slot) for slot in slots] for name, slots in named}

    def _take_class(self, name: str, node: ast.ClassDef, tree: ast.Module) -> None:
        self._homes[node.name].append(name)
        if node.name.endswith(_FIELDS):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.value:
                    self._defaults.append((node.name, field.target.id, field.value, tree))
        if node.name.endswith("SpecProvider"):
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    self._provided[method.name].append(method)

    def _take(self, nodes: Nodes, scope: _Scope) -> None:
        self._calls += [(node, scope) for node in nodes.of(ast.Call) if last_attribute(node.func).endswith(_FIELDS)]

    def _filled(self) -> Iterator[tuple[str, ast.expr, _Scope]]:
        for call, scope in self._calls:
            for keyword in call.keywords:
                if keyword.arg is not None:
                    yield f"{last_attribute(call.func)}.{keyword.arg}", keyword.value, scope
        for owner, slot, value, scope in self._defaults:
            yield f"{owner}.{slot}", value, scope
        for name, functions in self._functions.items():
            if name.startswith("get_") and "layer" in name and "spec" in name:
                for function in functions:
                    for value in _returned(function):
                        if isinstance(value, ast.Call) and last_attribute(value.func) == "ModuleSpec":
                            yield "ModuleSpec.module", value, function

    def named(self, node: ast.expr, scope: _Scope, depth: int = 0) -> set[str]:
        """The classes that an expression may be, or be a spec of."""
        several: list[tuple[ast.expr, _Scope]] = []
        match node:
            case ast.Name(id=name) if name in self._homes:
                return {name}
            case ast.Attribute(value=ast.Name(id=name)) if name in self._homes:
                return {name} if self._methods else set()  # a classmethod that builds it
            case ast.Attribute(value=ast.Call() as call):
                several = [(call, scope)]
            case ast.Name(id=name):
                several = [(value, scope) for value in _assigned(name, scope)] or self._built(name)
            case ast.IfExp():
                several = [(node.body, scope), (node.orelse, scope)]
            case ast.BoolOp():
                several = [(value, scope) for value in node.values]
            case ast.Tuple(elts=[first, *_]):
                several = [(first, scope)]  # the class, then its submodules
            case ast.Call() if last_attribute(node.func) == "ModuleSpec":
                several = [(word.value, scope) for word in node.keywords if word.arg == "module"]
            case ast.Call() if (index := _AROUND.get(last_attribute(node.func))) is not None:
                several = [(value, scope) for value in node.args[index : index + 1]]
            case ast.Call(func=ast.Attribute(attr=name)) if name in self._provided:
                several = [(value, method) for method in self._provided[name] for value in _returned(method)]
            case ast.Call(func=ast.Name(id=name)):
                several = [(value, other) for other in self._functions.get(name, []) for value in _returned(other)]
        if depth == _DEEPEST:
            return set()
        return {name for value, where in several for name in self.named(value, where, depth + 1)}

    def _built(self, name: str) -> list[tuple[ast.expr, _Scope]]:
        """What a function that stands in a slot makes an object of."""
        made = [(value, other) for other in self._functions.get(name, []) for value in _returned(other)]
        return [(value.func, other) for value, other in made if isinstance(value, ast.Call)]


def _returned(function: ast.FunctionDef) -> list[ast.expr]:
    return [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]


def _assigned(name: str, scope: _Scope) -> Iterator[ast.expr]:
    """What a variable of a function, or the first of several that are unpacked, is set to."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
                if isinstance(first, ast.Name) and first.id == name:
                    yield node.value
