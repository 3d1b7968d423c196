"""What code writes out, under whatever names: the strings that an expression is known to be, and collections."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from itertools import product
from math import prod
from typing import NamedTuple

from mcore_unpatch.scanner.names.resolver import Position, Ref, Resolver
from mcore_unpatch.scanner.sources.callers import argument, called_as
from mcore_unpatch.scanner.sources.effort import DEPTH
from mcore_unpatch.scanner.sources.scopes import FunctionNode, Scope, path_text

_WRITTEN = ast.Tuple | ast.List | ast.Set | ast.Dict
_STEPS = 10  # imports and calls that a collection is followed through
_PASSED_ON = 6  # names and calls that a string is followed through, once it is a parameter
_MOST_JOINED = 1000  # strings that are put together from parts


def string(node: ast.AST | None, at: Position) -> str | None:
    """The one string an expression is known to be, or None."""
    values = strings(node, at)
    return values[0] if len(values) == 1 else None


def strings(node: ast.AST | None, at: Position, steps: int = DEPTH) -> list[str]:
    """Every string an expression is known to take: a constant, by whatever names, a loop over constants."""
    if steps <= 0:
        return []
    match node:
        case ast.Constant(value=value):
            return [value] if isinstance(value, str) else []
        case ast.JoinedStr(values=parts):
            return _joined([p.value if isinstance(p, ast.FormattedValue) else p for p in parts], at, steps - 1)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return _joined([left, right], at, steps - 1)
        case ast.Attribute(attr="__name__", value=named):
            ref = at.expr(named)
            leaf = ref.name.rpartition(".")[2] if ref and ref.is_core else getattr(ref and ref.node, "name", "")
            return [leaf] if leaf else []
        case ast.Attribute(attr="__module__", value=named):
            ref = at.expr(named)
            return [ref.name.rpartition(".")[0]] if ref and ref.is_core and ref.kind == "class" else []
        case ast.Call(func=ast.Attribute(attr="join", value=ast.Constant(value=str(mark))), args=[parts]):
            several = [strings(part, at, steps - 1) for part in elements(parts, at)]
            return [mark.join(one[0] for one in several)] if all(len(one) == 1 for one in several) else []
        case ast.Call(func=ast.Attribute(attr="split", value=whole), args=[ast.Constant(value=".")]):
            return strings(whole, at, steps - 1)  # cut where the last part is taken
        case ast.Subscript(value=parts, slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1))):
            return [path.rpartition(".")[2] for path in strings(parts, at, steps - 1)]
        case ast.Name(id=name):
            scope = at.scope.home_of(name)
            return _of_name(name, at.home, scope, steps - 1) if scope is not None else []
    return []


def _joined(parts: list[ast.expr], at: Position, steps: int) -> list[str]:
    """The strings that the strings of some expressions give, one behind the other."""
    several = [strings(part, at, steps) for part in parts]
    if prod(map(len, several)) > _MOST_JOINED:
        return []
    at.home.project.effort.spend(len(several))
    return ["".join(one) for one in product(*several)]


def _of_name(name: str, home: Resolver, scope: Scope, steps: int) -> list[str]:
    """The strings that a name of a scope is known to take."""
    effort = home.project.effort
    for binding in reversed(scope.bindings[name]):
        effort.spend()
        match binding.kind:
            case "value":
                return strings(binding.node, home.at_binding(binding, scope), steps)
            case "item":
                looped = elements(binding.node, home.at_binding(binding, scope))
                effort.spend(len(looped))
                return [e.value for e in looped if isinstance(e, ast.Constant) and isinstance(e.value, str)]
            case "from":
                assert isinstance(binding.node, ast.ImportFrom)
                other = home.from_import(binding.node)
                known = other is not None and binding.detail in other.model.scope.bindings
                return _of_name(binding.detail, other, other.model.scope, steps) if other and known else []
            case "param":
                return _passed(name, home, scope, steps)
    return []


def _passed(name: str, home: Resolver, scope: Scope, steps: int) -> list[str]:
    """What this module's own calls pass for a parameter."""
    function, outer = scope.node, scope.parent
    assert isinstance(function, FunctionNode)
    is_method = outer is not None and outer.kind == "class"
    found: dict[str, None] = {}
    steps = min(steps, _PASSED_ON)
    for call, caller in home.calls_of(called_as(function, outer)) if steps > 0 else ():
        if (value := argument(call, function, name, is_method)) is not None:
            found |= dict.fromkeys(strings(value, caller, steps - 1))
    return list(found)


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
                return _passed_display(path, scope.node, home, steps - 1)
    return None


def _passed_display(name: str, function: FunctionNode, home: Resolver, steps: int) -> Given | None:
    """The collection that the first call of a function in its own module gives it."""
    for call, at in home.calls_of(function.name):
        value = argument(call, function, name, False)
        if value is not None and path_text(value) != name:
            return display(Given(value, at), None, steps)
    return None
