"""The collections that code writes out: the tuple, list, set or dict behind an expression, under whatever name."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import NamedTuple

from mcore_unpatch.scanner.names.resolver import Position, Ref, Resolver
from mcore_unpatch.scanner.sources.callers import argument
from mcore_unpatch.scanner.sources.scopes import FunctionNode, path_text

_WRITTEN = ast.Tuple | ast.List | ast.Set | ast.Dict
_STEPS = 10  # imports and calls that a collection is followed through


class Given(NamedTuple):
    """An expression, and where it stands."""

    node: ast.expr
    at: Position

    def ref(self) -> Ref | None:
        """What it stands for."""
        return self.at.expr(self.node)

    def other(self, node: ast.expr) -> Given:
        """Another expression of the same place."""
        return self._replace(node=node)


def elements(node: ast.AST | None, at: Position) -> list[ast.expr]:
    """What a loop gets from a collection that is written out; of a dict the keys."""
    table = display(Given(node, at)) if isinstance(node, ast.expr) else None
    if table is not None and isinstance(table.node, ast.Dict):
        return [key for key in table.node.keys if key is not None]
    return items(table) if table is not None else []


def items(table: Given) -> list[ast.expr]:
    """The elements of a collection that is no dict."""
    return table.node.elts if isinstance(table.node, ast.Tuple | ast.List | ast.Set) else []


def display(given: Given, known: Mapping[str, Given] | None = None, steps: int = _STEPS) -> Given | None:
    """The collection behind an expression: written there, `known` by its path, or kept under a name."""
    if isinstance(given.node, _WRITTEN):
        return given
    path = path_text(given.node)
    if path is None or not steps:
        return None
    if known and path in known:
        return known[path]
    home = given.at.home
    for scope in given.at.scope.chain():
        for binding in scope.bindings.get(path, ()):
            if binding.kind == "value" and isinstance(binding.node, _WRITTEN):
                return Given(binding.node, home.at_binding(binding, scope))
            if binding.kind == "from" and isinstance(binding.node, ast.ImportFrom):
                if (other := home.from_import(binding.node)) is not None:
                    name = ast.Name(binding.detail, ast.Load())
                    return display(Given(name, other.in_body(other.model.scope, 0)), None, steps - 1)
            if binding.kind == "param" and isinstance(scope.node, FunctionNode):
                return _passed(path, scope.node, home, steps - 1)
    return None


def _passed(name: str, function: FunctionNode, home: Resolver, steps: int) -> Given | None:
    """The collection that the first call of a function in its own module gives it."""
    for call, at in home.calls_of(function.name):
        value = argument(call, function, name, False)
        if value is not None and path_text(value) != name:
            return display(Given(value, at), None, steps)
    return None
