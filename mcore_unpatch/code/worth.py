"""Values that conditions ask for, worked out where their parts are known: nothing of the code is run.

A name of the library or the repository stands as the `Value` that it is; what is not known is `UNKNOWN`.
"""

# ruff: noqa: D102  what each method answers stands at `reached.Reached`

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from mcore_unpatch.code.module import Scope
from mcore_unpatch.code.values import Kind, Resolving, Value
from mcore_unpatch.library.interface import Release

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
    def release(self) -> Release: ...
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
ABSENT: Final = _Absent()  # what `getattr(Class, "member", None)` gives without the member: nothing else is that


class ParameterNames(tuple[str, ...]):
    """The names of a signature's parameters; `is_later`: a release to come may have more."""

    __slots__ = ()


def truth(value: object) -> bool | None:
    """The truth of a value; None where that is not known."""
    if value is UNKNOWN or value is MISSING:
        return None
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
    if isinstance(subject, ParameterNames):
        if name == "keys":
            return subject
        if name == "get" and arguments:
            missing = UNKNOWN if arguments[0] is UNKNOWN or is_later else None
            return arguments[0] if arguments[0] in subject else missing
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
