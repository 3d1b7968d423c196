"""What an expression may stand for."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from mcore_unpatch.code.module import Scope


class Kind(StrEnum):
    """What a value is."""

    MODULE = "module"
    CLASS = "class"
    FUNCTION = "function"
    INSTANCE = "instance"  # an object of the class `name`
    PARAMETER = "parameter"  # whatever the callers give
    TEXT = "text"
    ITEMS = "items"  # a display, or what an annotation says of a list
    OTHER = "other"  # a name of another library, or one that nobody has


class Value(NamedTuple):
    """One thing an expression may be; `node` is its definition where the repository has it.

    owner: of a method, the class or object it was reached through. parts: of items that stand nowhere, one by one.
    """

    kind: Kind
    name: str
    node: Any = None
    owner: Value | None = None
    parts: tuple[tuple[Any, ...], ...] = ()


Values = tuple[Value, ...]
Frame = dict[tuple[Scope, str], Values]  # what names stand for in one call, or in one row of a table


def instances(values: Values) -> Values:
    """The objects of some classes."""
    return tuple(Value(Kind.INSTANCE, value.name, value.node) for value in values if value.kind == Kind.CLASS)


def classes(values: Values) -> Values:
    """The classes of some objects."""
    return tuple(Value(Kind.CLASS, value.name, value.node) for value in values if value.kind == Kind.INSTANCE)


def texts(values: Values) -> list[str]:
    """The texts among some values."""
    return [value.name for value in values if value.kind == Kind.TEXT]
