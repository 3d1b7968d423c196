"""Displays, operators and comparisons on one release, for `Reached.value`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from mcore_unpatch.code.module import inner_scope
from mcore_unpatch.code.worth import LONGEST, MISSING, UNKNOWN, Given, OnRelease, compared, same, tried, truth


def several(run: OnRelease, nodes: list[ast.expr], given: Given | None) -> list[Any] | None:
    """What several are worth; None where one is not known."""
    values = [run.value(node, given) for node in nodes]
    return None if any(value is UNKNOWN for value in values) else values


def _display(run: OnRelease, node: Any, given: Given | None) -> object:
    values = several(run, node.elts, given)
    makers: dict[type, Callable[..., Any]] = {ast.Tuple: tuple, ast.List: list, ast.Set: frozenset}
    return UNKNOWN if values is None else tried(makers[type(node)], values)


def _unary(run: OnRelease, node: ast.UnaryOp, given: Given | None) -> object:
    value = run.value(node.operand, given)
    if isinstance(node.op, ast.Not):
        if value is MISSING:
            return MISSING
        came_out = truth(value)
        return UNKNOWN if came_out is None else not came_out
    return tried(operator.neg, value) if isinstance(node.op, ast.USub) else UNKNOWN


def _either(run: OnRelease, node: ast.BoolOp, given: Given | None) -> object:
    ends = isinstance(node.op, ast.Or)  # the truth value that ends the chain
    is_known, value = True, UNKNOWN  # type: tuple[bool, object]
    for part in node.values:
        value = run.value(part, given)
        came_out = truth(value)
        if came_out is ends:
            return value if is_known else ends
        is_known = is_known and came_out is not None
    return value if is_known else UNKNOWN


def _if_expression(run: OnRelease, node: ast.IfExp, given: Given | None) -> object:
    came_out = truth(run.value(node.test, given))
    if came_out is not None:
        return run.value(node.body if came_out else node.orelse, given)
    return same([run.value(node.body, given), run.value(node.orelse, given)])


def _sum(run: OnRelease, node: ast.BinOp, given: Given | None) -> object:
    left, right = run.value(node.left, given), run.value(node.right, given)
    if isinstance(node.op, ast.Add) and type(left) is type(right) and isinstance(left, (str, int, tuple)):
        return tried(operator.add, left, right)
    return UNKNOWN


def _comparison(run: OnRelease, node: ast.Compare, given: Given | None) -> object:
    left = run.value(node.left, given)
    if left is MISSING:
        return MISSING
    is_known = True
    for symbol, comparator in zip(node.ops, node.comparators, strict=True):
        right = run.value(comparator, given)
        held = compared(symbol, left, right, run.is_later)
        if held is False:
            return False
        is_known, left = is_known and held is True, right
    return True if is_known else UNKNOWN


def _subscript(run: OnRelease, node: ast.Subscript, given: Given | None) -> object:
    value = run.value(node.value, given)
    if isinstance(node.slice, ast.Slice):
        ends = [run.value(end, given) if end is not None else None for end in (node.slice.lower, node.slice.upper)]
        if node.slice.step is not None or UNKNOWN in ends:
            return UNKNOWN
        return tried(operator.getitem, value, slice(*ends))
    index = run.value(node.slice, given)
    return tried(operator.getitem, value, index) if isinstance(value, (str, tuple, list, dict)) else UNKNOWN


def _generated(run: OnRelease, node: Any, given: Given | None) -> object:
    first = node.generators[0]
    values = run.value(first.iter, given)
    if len(node.generators) > 1 or first.ifs or not isinstance(first.target, ast.Name):
        return UNKNOWN
    if not isinstance(values, (str, tuple, list)) or len(values) > LONGEST:
        return UNKNOWN
    key = (inner_scope(node), first.target.id)
    results = [run.value(node.elt, {**(given or {}), key: value}) for value in values]
    return UNKNOWN if any(value is UNKNOWN for value in results) else results


LITERALS: dict[type, Callable[[Any, Any, Given | None], object]] = {
    ast.Constant: lambda run, node, given: node.value,
    **dict.fromkeys((ast.Tuple, ast.List, ast.Set), _display),
    ast.UnaryOp: _unary,
    ast.BoolOp: _either,
    ast.IfExp: _if_expression,
    ast.NamedExpr: lambda run, node, given: run.value(node.value, given),
    ast.BinOp: _sum,
    ast.Compare: _comparison,
    ast.Subscript: _subscript,
    **dict.fromkeys((ast.GeneratorExp, ast.ListComp), _generated),
}
