"""What an expression may stand for."""

# ruff: noqa: D102  what each method answers stands at `names.Names`

from __future__ import annotations

import ast
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from mcore_unpatch.code.module import Binding, Scope
from mcore_unpatch.library.interface import Library


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


class Resolving(Protocol):
    """What `names.Names` answers for those that evaluate one kind of expression, or a member."""

    library: Library
    active: dict[object, int]

    def of(self, node: ast.AST | None, frame: Frame | None = None) -> Values: ...
    def name(self, node: ast.Name, frame: Frame | None) -> Values: ...
    def lookup(self, name: str, node: ast.AST, first: Scope, frame: Frame | None = None) -> Values: ...
    def bound_to(self, binding: Binding, scope: Scope, frame: Frame | None) -> Values: ...
    def imported_from(self, binding: Binding, scope: Scope) -> Value: ...
    def annotated(self, node: ast.AST | None) -> Values: ...
    def narrowed(self, node: ast.AST, key: str) -> Values: ...
    def settled(self, values: Values) -> Values: ...
    def argument(self, arg: ast.arg, call: ast.Call) -> ast.expr | None: ...
    def module(self, dotted: str, near: str) -> Value: ...
    def lineage(self, value: Value) -> list[Value]: ...
    def of_library(self, value: Value) -> list[str]: ...
