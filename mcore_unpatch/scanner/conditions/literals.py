"""Literals, operators and comparisons of the scanned code, worked out where their parts are known: nothing is run."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from mcore_unpatch.scanner.names.resolver import Position, Ref

LONGEST = 1000  # items of what is looped over
_DEEPEST = 30


class _Unknown:
    def __bool__(self) -> bool:
        raise TypeError("an unknown value is neither true nor false")


UNKNOWN: Final = _Unknown()


class _Absent:
    def __bool__(self) -> bool:
        return False


# What `getattr(Class, "member", None)` gives where the class lacks the member: nothing else is that member.
ABSENT: Final = _Absent()


class AtLeast(NamedTuple):
    """A version of which only the oldest is known."""

    bound: tuple[int, ...]


_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


class Literals:
    """Expressions whose worth their parts tell; names and calls are known to a subclass."""

    _depth = 0

    def truth(self, node: ast.expr, at: Position) -> bool | None:
        """Whether an expression is true; None where that is not known."""
        return as_bool(self.value(node, at))

    def value(self, node: ast.AST | None, at: Position) -> object:
        """What an expression is worth, or `UNKNOWN`; a name of Megatron's or of the repository is a `Ref`."""
        at.home.project.effort.spend()
        handler: Callable[[Any, Position], object] | None = getattr(self, "_on_" + type(node).__name__, None)
        if handler is None or self._depth > _DEEPEST:
            return UNKNOWN
        self._depth += 1
        try:
            return handler(node, at)
        finally:
            self._depth -= 1

    def _on_Constant(self, node: ast.Constant, _: Position) -> object:
        return node.value

    def _elements(self, nodes: Iterable[ast.expr], at: Position) -> list[Any] | None:
        values = [self.value(node, at) for node in nodes]
        return None if any(value is UNKNOWN for value in values) else values

    def _on_Tuple(self, node: ast.Tuple, at: Position) -> object:
        values = self._elements(node.elts, at)
        return UNKNOWN if values is None else tuple(values)

    def _on_List(self, node: ast.List, at: Position) -> object:
        values = self._elements(node.elts, at)
        return UNKNOWN if values is None else values

    def _on_Set(self, node: ast.Set, at: Position) -> object:
        values = self._elements(node.elts, at)
        return UNKNOWN if values is None else tried(frozenset, values)

    def _on_UnaryOp(self, node: ast.UnaryOp, at: Position) -> object:
        value = self.value(node.operand, at)
        if isinstance(node.op, ast.Not):
            truth = as_bool(value)
            return UNKNOWN if truth is None else not truth
        return tried(operator.neg, value) if isinstance(node.op, ast.USub) else UNKNOWN

    def _on_BoolOp(self, node: ast.BoolOp, at: Position) -> object:
        ends = isinstance(node.op, ast.Or)  # the truth value that ends the chain
        known = True
        value: object = UNKNOWN
        for part in node.values:
            value = self.value(part, at)
            truth = as_bool(value)
            if truth is ends:
                return value if known else ends
            known = known and truth is not None
        return value if known else UNKNOWN

    def _on_IfExp(self, node: ast.IfExp, at: Position) -> object:
        truth = self.truth(node.test, at)
        if truth is not None:
            return self.value(node.body if truth else node.orelse, at)
        return same([self.value(node.body, at), self.value(node.orelse, at)])

    def _on_NamedExpr(self, node: ast.NamedExpr, at: Position) -> object:
        return self.value(node.value, at)

    def _on_BinOp(self, node: ast.BinOp, at: Position) -> object:
        left, right = self.value(node.left, at), self.value(node.right, at)
        if isinstance(node.op, ast.Add) and type(left) is type(right) and isinstance(left, str | int | tuple):
            return tried(operator.add, left, right)
        return UNKNOWN

    def _on_Compare(self, node: ast.Compare, at: Position) -> object:
        left = self.value(node.left, at)
        known = True
        for symbol, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.value(comparator, at)
            truth = self.compare(symbol, left, right)
            if truth is False:
                return False
            known = known and truth is True
            left = right
        return True if known else UNKNOWN

    def compare(self, symbol: ast.cmpop, left: object, right: object) -> bool | None:
        """Whether a comparison holds; None where that is not known."""
        equality = isinstance(symbol, ast.Is | ast.IsNot | ast.Eq | ast.NotEq)
        if equality and (left is ABSENT or right is ABSENT):
            other = right if left is ABSENT else left
            return (other is None or other is ABSENT) is isinstance(symbol, ast.Is | ast.Eq)
        if left is UNKNOWN or right is UNKNOWN:
            return None
        if equality and (left is None or right is None):
            other = right if left is None else left
            equal = (False if as_bool(other) else None) if isinstance(other, Ref) else other is None
            return equal if equal is None or isinstance(symbol, ast.Is | ast.Eq) else not equal
        if isinstance(left, AtLeast) and isinstance(right, tuple):
            return _compared_bound(symbol, left.bound, right)
        if any(isinstance(one, Ref | AtLeast) for one in (left, right)):
            return None
        answer = tried(_COMPARISONS[type(symbol)], left, right)
        return answer if isinstance(answer, bool) else None

    def _on_Subscript(self, node: ast.Subscript, at: Position) -> object:
        value = self.value(node.value, at)
        if isinstance(node.slice, ast.Slice):
            ends = [self.value(end, at) if end is not None else None for end in (node.slice.lower, node.slice.upper)]
            if node.slice.step is not None or UNKNOWN in ends:
                return UNKNOWN
            return value if isinstance(value, AtLeast) else tried(operator.getitem, value, slice(*ends))
        index = self.value(node.slice, at)
        if isinstance(value, AtLeast):
            return value.bound[0] if index == 0 else UNKNOWN
        return tried(operator.getitem, value, index) if isinstance(value, str | tuple | list | dict) else UNKNOWN

    def _on_GeneratorExp(self, node: ast.GeneratorExp | ast.ListComp, at: Position) -> object:
        first = node.generators[0]
        values = self.value(first.iter, at)
        if len(node.generators) > 1 or first.ifs or not isinstance(first.target, ast.Name):
            return UNKNOWN
        if not isinstance(values, str | tuple | list) or len(values) > LONGEST:
            return UNKNOWN
        name = first.target.id
        found = [self.value(node.elt, at._replace(given={**(at.given or {}), name: one})) for one in values]
        return UNKNOWN if any(one is UNKNOWN for one in found) else found

    _on_ListComp = _on_GeneratorExp


def as_bool(value: object) -> bool | None:
    """The truth of a value; None where that is not known."""
    if value is UNKNOWN:
        return None
    if isinstance(value, Ref):  # modules, classes and functions are true; an object may say otherwise
        return True if value.kind in {"module", "class", "function", "local-function", "local-module"} else None
    return True if isinstance(value, AtLeast) else bool(value)


def same(values: list[object]) -> object:
    """The one value that all of these are."""
    first = values[0]
    return first if all(type(one) is type(first) and one == first for one in values[1:]) else UNKNOWN


def tried(function: Callable[..., Any], *arguments: Any) -> object:
    """What a function gives for known values, `UNKNOWN` where it fails."""
    if any(argument is UNKNOWN or isinstance(argument, Ref) for argument in arguments):
        return UNKNOWN
    try:
        return function(*arguments)
    except (TypeError, ValueError, IndexError, KeyError, AttributeError, OverflowError):
        return UNKNOWN


def _compared_bound(symbol: ast.cmpop, bound: tuple[int, ...], other: tuple[Any, ...]) -> bool | None:
    """A version that is `bound` or newer, compared."""
    try:
        newer = bound >= other
    except TypeError:
        return None
    if not newer:
        return None
    if isinstance(symbol, ast.GtE | ast.Gt):
        return True if isinstance(symbol, ast.GtE) or bound > other else None
    if isinstance(symbol, ast.Lt | ast.LtE):
        return False if isinstance(symbol, ast.Lt) or bound > other else None
    return None
