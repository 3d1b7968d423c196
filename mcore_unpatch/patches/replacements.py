"""What a written value is: a function, a new object, a method that was bound, a copy kept of the original."""

from __future__ import annotations

import ast
import re

from mcore_unpatch.code.names import Names
from mcore_unpatch.code.syntax import last_name
from mcore_unpatch.code.values import Frame, Kind, Value

_MOVES = ("to", "cuda", "cpu", "half", "bfloat16", "float")
_MAKES_CALLABLE = ("partial", "property", "staticmethod", "classmethod", "wraps", "cached_property", "MethodType")
_KEPT = re.compile(r"orig|backup|old|_real|saved|_prev", re.I)


def bound_to(value: ast.AST | None) -> ast.AST | None:
    """The object of `types.MethodType(fn, obj)` and `fn.__get__(obj, cls)`."""
    if isinstance(value, ast.Call):
        if last_name(value.func) == "MethodType" and len(value.args) == 2:
            return value.args[1]
        if last_name(value.func) == "__get__" and value.args:
            return value.args[0]
    return None


def is_callable(names: Names, value: ast.AST | None, frame: Frame | None) -> bool:
    """Whether a value may be a function or a class."""
    if isinstance(value, ast.Lambda) or bound_to(value) is not None:
        return True
    found = names.settled(names.of(value, frame))
    if isinstance(value, ast.Call) and not found:
        return last_name(value.func) in _MAKES_CALLABLE
    return any(
        one.kind in (Kind.FUNCTION, Kind.CLASS) or (one.kind == Kind.OTHER and not one.name.startswith("builtins."))
        for one in found
    )


def is_own_function(names: Names, value: ast.AST | None, frame: Frame | None) -> bool:
    """Whether a value may be a function of the repository."""
    return any(one.kind == Kind.FUNCTION and one.node is not None for one in names.of(value, frame))


def is_new_object(names: Names, value: ast.AST | None, frame: Frame | None) -> bool:
    """Whether a value is plainly a new object: a class is called."""
    value = _without_moves(value)
    if not isinstance(value, ast.Call):
        return any(one.kind == Kind.INSTANCE and one.node is not None for one in names.of(value, frame))
    return last_name(value.func)[:1].isupper() or (
        last_name(value.func).startswith("_") and last_name(value.func)[1:2].isupper()
    )


def made(names: Names, value: ast.AST | None) -> Value | None:
    """The object that a call makes: of a class that is known, or of one whose name looks like a class's."""
    value = _without_moves(value)
    if not isinstance(value, ast.Call):
        return None
    found = next((one for one in names.of(value) if one.kind == Kind.INSTANCE), None)
    name = last_name(value.func)
    return found or (Value(Kind.OTHER, name) if name[:1].isupper() else None)


def _without_moves(value: ast.AST | None) -> ast.AST | None:
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _MOVES:
        value = value.func.value
    return value


def is_backup(names: Names, value: ast.AST | None, name: str, frame: Frame | None) -> bool:
    """`Cls._original = Cls.forward`: what is written is the library's own, under another name."""
    found = names.of(value, frame)
    if not found and isinstance(value, ast.Attribute):
        return value.attr != name and _KEPT.search(name) is not None
    return any(
        one.kind in (Kind.FUNCTION, Kind.CLASS) and names.library.within(one.name) and not one.name.endswith(f".{name}")
        for one in found
    )
