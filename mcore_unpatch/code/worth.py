"""Values that conditions ask for, worked out where their parts are known: nothing of the code is run.

A name of the library or the repository stands as the `Value` that it is; what is not known is `UNKNOWN`.
"""

# ruff: noqa: D102  what each method answers stands at `reached.Reached`

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from mcore_unpatch.code.module import Scope, inner_scope
from mcore_unpatch.code.values import Kind, Resolving, Value
from mcore_unpatch.library.detailed import Detailed

LONGEST = 1000  # items of what is looped over
Given = dict[tuple[Scope, str], object]  # what names are worth in one call, or in one row of a loop

COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
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
BUILTINS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (int, str, float, bool, tuple, list, set, frozenset, len, all, any, min, max, sorted)
}
_OF_SETS = "issubset issuperset isdisjoint intersection union difference"
_METHODS: dict[type, str] = {
    str: "split rsplit startswith endswith strip lstrip rstrip replace partition rpartition removeprefix lower isdigit",
    tuple: "index count",
    list: "index count copy",
    set: _OF_SETS,
    frozenset: _OF_SETS,
    dict: "get keys values items",
}
VERSION_PARTS = {"base_version", "release", "major", "minor", "micro", "public"}


class OnRelease(Protocol):
    """What `reached.Reached` answers for those that work out one kind of expression."""

    names: Resolving
    subject: tuple[str, Value] | None
    is_later: bool

    @property
    def release(self) -> Detailed: ...
    def refuses(self, name: str) -> bool | None: ...
    def value(self, node: ast.AST | None, given: Given | None = None) -> object: ...
    def between(self, node: ast.AST, seen_from: ast.AST, given: Given | None = None) -> bool | None: ...
    def remembered(self, key: object, given: Given | None, work_out: Callable[[], object]) -> object: ...


class _Unknown:
    def __bool__(self) -> bool:
        raise TypeError("an unknown value is neither true nor false")


class _Absent:
    def __bool__(self) -> bool:
        return False


UNKNOWN: Final = _Unknown()
MISSING: Final = _Unknown()  # what is read and not there: it raises
TRUE_SOMEHOW: Final = Value(Kind.OTHER, "true")  # `unknown or 1`: what it is, is not known
FALSE_SOMEHOW: Final = Value(Kind.OTHER, "false")
ABSENT: Final = _Absent()  # what `getattr(Class, "member", None)` gives without the member: nothing else is that


class ParameterNames(tuple[str, ...]):
    """The names of a signature's parameters; `is_later`: a release to come may have more."""

    __slots__ = ()


def truth(value: object) -> bool | None:
    """The truth of a value; None where that is not known."""
    if value is UNKNOWN or value is MISSING:
        return None
    if value is TRUE_SOMEHOW or value is FALSE_SOMEHOW:
        return value is TRUE_SOMEHOW
    if isinstance(value, Value):  # modules, classes and functions are true; an object may say otherwise
        return True if value.kind in (Kind.MODULE, Kind.CLASS, Kind.FUNCTION) else None
    return bool(value)


def both(truths: Iterable[bool | None]) -> bool | None:
    """The logical and of what may be unknown."""
    unknown = False
    for one in truths:
        if one is False:
            return False
        unknown = unknown or one is None
    return None if unknown else True


def negated(one: bool | None) -> bool | None:
    """The logical not of what may be unknown."""
    return None if one is None else not one


def known(value: object) -> object:
    """`UNKNOWN` for nothing."""
    return UNKNOWN if value is None else value


def same(values: list[object]) -> object:
    """The one value that all of these are."""
    if not values:
        return UNKNOWN
    first = values[0]
    return first if all(type(value) is type(first) and value == first for value in values[1:]) else UNKNOWN


def tried(function: Callable[..., Any], *arguments: Any) -> object:
    """What a function gives for known values, `UNKNOWN` where it fails."""
    if any(argument is MISSING for argument in arguments):
        return MISSING
    if any(argument is UNKNOWN or isinstance(argument, Value) for argument in arguments):
        return UNKNOWN
    try:
        return function(*arguments)
    except (TypeError, ValueError, IndexError, KeyError, AttributeError, OverflowError):
        return UNKNOWN


def compared(symbol: ast.cmpop, left: object, right: object, is_later: bool) -> bool | None:
    """Whether a comparison holds."""
    if isinstance(right, ParameterNames) and isinstance(left, str) and left not in right and is_later:
        return isinstance(symbol, ast.In)  # who asks for what no release has was told that it comes
    equality = isinstance(symbol, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq))
    if equality and (left is ABSENT or right is ABSENT):
        other = right if left is ABSENT else left
        return (other is None or other is ABSENT) is isinstance(symbol, (ast.Is, ast.Eq))
    if left in (UNKNOWN, MISSING) or right in (UNKNOWN, MISSING):
        return None
    if equality and (left is None or right is None):
        other = right if left is None else left
        equal = (False if truth(other) else None) if isinstance(other, Value) else other is None
        return equal if equal is None or isinstance(symbol, (ast.Is, ast.Eq)) else not equal
    if isinstance(left, Value) or isinstance(right, Value):
        return None
    answer = tried(COMPARISONS[type(symbol)], left, right)
    return answer if isinstance(answer, bool) else None


def called_on(subject: object, name: str, arguments: list[object], is_later: bool) -> object:
    """What a method of a plain value gives."""
    if name not in _METHODS.get(type(subject), "").split():
        return UNKNOWN
    return tried(getattr(subject, name), *arguments)


def version(text: object) -> object:
    """A version that can be compared."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(text) if isinstance(text, str) else text if isinstance(text, Version) else UNKNOWN
    except InvalidVersion:
        return UNKNOWN


# -- displays, operators and comparisons ------------------------------------------------------------------------------


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
            return value if is_known else TRUE_SOMEHOW if ends else FALSE_SOMEHOW
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
