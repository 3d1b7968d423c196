"""What the open names of a write stand for: in each row of the loops around it, in each call of its function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from mcore_unpatch.code.module import Scope, inner_scope, qualified, scope_of
from mcore_unpatch.code.names import Names
from mcore_unpatch.code.syntax import (
    FUNCTIONS,
    NAMED_FUNCTIONS,
    ancestors,
    default_of,
    function_of,
    last_name,
    names_in,
    parameters,
    parent_of,
)
from mcore_unpatch.code.values import Frame, Kind, Value, Values
from mcore_unpatch.patches.records import Write, WriteKind

Unfolded = tuple[Frame, Any]  # what the names stand for, and the call that says so: none for a row of a loop


def unfolded(names: Names, write: Write, frame: Frame | None, named: bool) -> Iterator[Unfolded]:
    """Each frame of a write; `named`: the attribute that it sets is known, the object is not."""
    used: set[str] = set()
    for part in (write.base, write.name):
        used |= names_in(part) if isinstance(part, ast.AST) else set()
    behind = _behind(used, scope_of(write.base))
    for loop in _loops(write.place):
        row_names = names_in(loop.target)
        if row_names & behind and not any((scope_of(loop), name) in (frame or {}) for name in row_names):
            rows = list(rows_of(names, loop, frame))
            yield from (({**(frame or {}), **row}, None) for row in rows)
            if rows:
                return
    for parent, _ in ancestors(write.place):
        if isinstance(parent, FUNCTIONS) and (not named or frame is None):
            known = frame or {}
            open_ones = (arg for arg in parameters(parent) if (inner_scope(parent), arg.arg) not in known)
            asked = [arg for arg in open_ones if arg.arg in behind]
            is_called = getattr(parent, "name", "__init__") != "__init__"
            if asked and is_called and (not named or _is_installer(write, asked)):
                calls = list(_calls(names, parent, asked, write, frame))
                yield from calls
                if calls:
                    return


def _loops(node: ast.AST) -> list[Any]:
    """The loops around a node in its own function, the outermost first: an inner one may run over its row."""
    found: list[Any] = []
    for parent, child in ancestors(node):
        if isinstance(parent, FUNCTIONS):
            break
        if isinstance(parent, (ast.For, ast.AsyncFor)) and child is not parent.iter:
            found.append(parent)
    return found[::-1]


def _calls(names: Names, function: Any, asked: list[ast.arg], write: Write, frame: Frame | None) -> Iterator[Unfolded]:
    inner = inner_scope(function)
    for call in names.callers(function):
        given: Frame = {(inner, arg.arg): names.of(names.argument(arg, call)) for arg in asked}
        for arg in parameters(function):
            if arg not in asked and (passed := names.argument(arg, call)) is not None and passed is not default_of(arg):
                given[inner, arg.arg] = names.of(passed)
        given |= _decorated(call, function, write)
        yield {**(frame or {}), **given}, call


def _decorated(call: ast.Call, function: Any, write: Write) -> Frame:
    """`@helper(Cls) def f`: the function that the helper gives back is called with `f`."""
    below = parent_of(call)
    if not isinstance(below, (*NAMED_FUNCTIONS, ast.ClassDef)) or not any(call is one for one in below.decorator_list):
        return {}
    kind = Kind.CLASS if isinstance(below, ast.ClassDef) else Kind.FUNCTION
    for parent, _ in ancestors(write.place):
        if parent is function:
            break
        if isinstance(parent, NAMED_FUNCTIONS) and parameters(parent):
            return {(inner_scope(parent), parameters(parent)[0].arg): (Value(kind, qualified(below), below),)}
    return {}


def _is_installer(write: Write, asked: list[ast.arg]) -> bool:
    """Whether a function writes what it is told to: `setattr(obj, name, fn)`, and `obj.__class__ = cls`."""
    if write.name == "__class__":
        return not scope_of(function_of(asked[0])).is_class
    is_name = isinstance(write.name, ast.Name) and any(write.name.id == arg.arg for arg in asked)
    return write.kind == WriteKind.SETATTR and is_name


def _behind(used: set[str], scope: Scope) -> set[str]:
    """Names, and those they were made from in the same function."""
    found = set(used)
    for _ in range(2):
        for name in list(found):
            for binding in scope.names.get(name, ()):
                if isinstance(binding.value, ast.expr):
                    found |= names_in(binding.value)
    return found


def rows_of(names: Names, loop: Any, frame: Frame | None) -> Iterator[Frame]:
    """The rows of a table that a loop runs over, where it is written out."""
    source, scope = loop.iter, scope_of(loop)
    while isinstance(source, ast.Call) and last_name(source.func) in ("list", "tuple", "sorted") and source.args:
        source = source.args[0]
    is_pairs = isinstance(source, ast.Call) and last_name(source.func) == "items"
    of: Any = source.func.value if is_pairs and isinstance(source.func, ast.Attribute) else source
    targets = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
    for value in names.settled(names.of(of, frame)):
        if value.kind != Kind.ITEMS or value.node is None or isinstance(value.node, ast.Subscript):
            continue
        for parts in _rows(value.node, is_pairs, len(targets)):
            if len(parts) == len(targets):
                yield from [dict(_taken_apart(names, scope, targets, parts, frame))]


def _rows(table: Any, is_pairs: bool, width: int) -> Iterator[list[Any]]:
    if isinstance(table, ast.Dict):
        pairs = zip(table.keys, table.values, strict=True)
        yield from ([key, value] if is_pairs else [key] for key, value in pairs if key is not None)
    else:
        for row in getattr(table, "elts", ()):
            yield row.elts if width > 1 and isinstance(row, (ast.Tuple, ast.List)) else [row]


def _taken_apart(
    names: Names, scope: Scope, targets: list[Any], parts: list[Any], frame: Frame | None
) -> Iterator[tuple[tuple[Scope, str], Values]]:
    for target, part in zip(targets, parts, strict=True):
        if isinstance(target, ast.Name):
            yield (scope, target.id), names.of(part, frame)
        elif isinstance(target, ast.Tuple) and isinstance(part, (ast.Tuple, ast.List)):
            if len(target.elts) == len(part.elts):
                yield from _taken_apart(names, scope, target.elts, part.elts, frame)
