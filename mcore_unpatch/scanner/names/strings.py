"""What code writes out, under whatever names: the strings that an expression is known to be, and collections."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import NamedTuple, cast

from mcore_unpatch.scanner.names.resolver import Position, Ref, Resolver
from mcore_unpatch.scanner.sources.callers import argument, called_as
from mcore_unpatch.scanner.sources.effort import DEPTH
from mcore_unpatch.scanner.sources.scopes import FunctionNode, Scope, path_text

_WRITTEN = ast.Tuple | ast.List | ast.Set | ast.Dict
_STEPS = 10  # imports and calls that a collection is followed through
_PASSED_ON = 6  # names and calls that a string is followed through, once it comes from elsewhere
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
            return [ref.name.rpartition(".")[0]] if ref and ref.is_core and ref.kind in {"class", "function"} else []
        case ast.Call(func=ast.Attribute(attr="join", value=ast.Constant(value=str(mark))), args=[parts]):
            several = [strings(*part, steps - 1) for part in elements(parts, at)]
            return [mark.join(texts[0] for texts in several)] if all(len(texts) == 1 for texts in several) else []
        case ast.Call(func=ast.Attribute(attr="split", value=whole), args=[ast.Constant(value=".")]):
            return strings(whole, at, steps - 1)  # cut where the last part is taken
        case ast.Subscript(value=parts, slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1))):
            return [path.rpartition(".")[2] for path in strings(parts, at, steps - 1)]
        case ast.Name(id=name):
            given = next(origins(name, at, looped=True), [])
            if len(given) != 1 or given[0].at.scope is not at.scope.home_of(name):
                steps = min(steps, _PASSED_ON) - 1
            return list(dict.fromkeys(text for origin in given for text in strings(*origin, steps - 1)))
    return []


def _joined(parts: list[ast.expr], at: Position, steps: int) -> list[str]:
    """The strings that the strings of some expressions give, one behind the other."""
    several = [strings(part, at, steps) for part in parts]
    if prod(map(len, several)) > _MOST_JOINED:
        return []
    at.home.project.effort.spend(len(several))
    return ["".join(pieces) for pieces in product(*several)]


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


def origins(path: str, at: Position, steps: int = _STEPS, looped: bool = False) -> Iterator[list[Given]]:
    """By binding of a name, the last first: what it is set to, here or where it is imported from, or what calls pass.

    looped: also the elements that a loop sets it to.
    """
    home, scope = at.home, at.scope.home_of(path)
    for binding in reversed(scope.bindings[path]) if scope is not None and steps > 0 else ():
        home.project.effort.spend()
        where = home.at_binding(binding, cast("Scope", scope))
        match binding.kind, binding.node:
            case "value", ast.expr() as value:
                yield [Given(value, where)]
            case "item", ast.expr() as over if looped:
                yield elements(over, where)
            case "from", ast.ImportFrom() as imported if (other := home.from_import(imported)) is not None:
                yield from origins(binding.detail, other.in_body(other.model.scope, 0), steps - 1, looped)
            case "param", ast.arg():
                yield _passed(path, cast("FunctionNode", where.scope.node), home)


def _passed(name: str, function: FunctionNode, home: Resolver) -> list[Given]:
    """What this module's own calls pass for a parameter."""
    outer = home.outside(function).scope
    calls = home.calls_of(called_as(function, outer))
    passed = ((argument(call, function, name, outer.kind == "class"), at) for call, at in calls)
    return [Given(value, at) for value, at in passed if value is not None]


def elements(node: ast.AST | None, at: Position) -> list[Given]:
    """What a loop gets from a collection that is written out; of a dict the keys."""
    table = display(Given(node, at)) if isinstance(node, ast.expr) else None
    if table is None:
        return []
    found = table.node.keys if isinstance(table.node, ast.Dict) else items(table)
    at.home.project.effort.spend(len(found))
    return [table.other(element) for element in found if element is not None]


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
    behind = [origin for group in origins(path, given.at, steps) for origin in group]
    table = next((origin for origin in behind if isinstance(origin.node, _WRITTEN)), None)
    return table or (display(behind[0], None, steps - 1) if behind else None)
