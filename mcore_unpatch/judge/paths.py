"""Whether a call is made exactly once on every way through a function, and by the function itself."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import FunctionNode

Asked = Callable[[ast.Call], bool]
Counts = frozenset[int]  # how often it may have been made so far; two stands for more

_INNER = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
_LOOPS = ast.For | ast.AsyncFor | ast.While | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_NONE: Counts = frozenset({0})


def once_on_every_path(function: FunctionNode | ast.Lambda, asked: Asked) -> bool:
    """Ways that end in an exception do not count; a call in a function inside is somebody else's."""
    inner = [node for node in walk(function) if isinstance(node, _INNER) and node is not function]
    if any(isinstance(node, ast.Call) and asked(node) for one in inner for node in walk(one)):
        return False
    ways = _Ways(asked)
    try:
        left = ways.of_expression(function.body) if isinstance(function, ast.Lambda) else ways.of(function.body, _NONE)
    except RecursionError:
        return False  # too deep to tell
    return left | ways.returned == {1}


class _Ways:
    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self.returned: Counts = frozenset()

    def of(self, body: Iterable[ast.stmt], before: Counts) -> Counts:
        """What may have been counted behind some statements; nothing where none of the ways gets there."""
        for one in body:
            if not before:
                break
            before = self._behind(one, before)
        return before

    def _behind(self, one: ast.stmt, before: Counts) -> Counts:
        match one:
            case ast.Return():
                self.returned |= _sums(before, self.of_expression(one.value))
                return frozenset()
            case ast.Raise():
                return frozenset()
            case ast.If():
                at = _sums(before, self.of_expression(one.test))
                return self.of(one.body, at) | self.of(one.orelse, at)
            case ast.With() | ast.AsyncWith():
                at = before
                for item in one.items:
                    at = _sums(at, self.of_expression(item.context_expr))
                return self.of(one.body, at)
            case ast.Try():
                inside = self.of(one.body, before)
                failed = frozenset[int]().union(*(self.of(handler.body, before) for handler in one.handlers))
                return self.of(one.finalbody, self.of(one.orelse, inside) | failed)
            case ast.For() | ast.AsyncFor() | ast.While():
                through = self.of(one.body, before)
                return self.of(one.orelse, before | through | (frozenset({2}) if through - before else through))
            case ast.Match():
                cases = frozenset[int]().union(*(self.of(case.body, before) for case in one.cases))
                return before | cases
            case _ if isinstance(one, _INNER):
                return before
            case _:
                return _sums(before, self.of_expression(one))

    def of_expression(self, node: ast.AST | None) -> Counts:
        """How often an expression, or a plain statement, may make the call."""
        match node:
            case None:
                return _NONE
            case ast.IfExp():
                either = self.of_expression(node.body) | self.of_expression(node.orelse)
                return _sums(self.of_expression(node.test), either)
            case ast.BoolOp():
                first, *rest = node.values
                return _sums(self.of_expression(first), *(_NONE | self.of_expression(one) for one in rest))
            case _ if isinstance(node, _INNER):
                return _NONE
        within = _sums(*(self.of_expression(child) for child in ast.iter_child_nodes(node)))
        own = frozenset({1}) if isinstance(node, ast.Call) and self._asked(node) else _NONE
        many = isinstance(node, _LOOPS) and within != _NONE
        return frozenset({0, 2}) if many else _sums(within, own)


def _sums(*several: Counts) -> Counts:
    found = _NONE
    for one in several:
        found = frozenset(min(a + b, 2) for a in found for b in one)
    return found
