"""Whether a write puts back what was there, and whether a patch is put back by the function that makes it."""

from __future__ import annotations

import ast

from mcore_unpatch.code.module import scope_of
from mcore_unpatch.code.names import Names
from mcore_unpatch.code.syntax import ancestors, is_try, last_name, own_nodes, spelled, text_of
from mcore_unpatch.code.values import Frame, Kind
from mcore_unpatch.patches.records import Write, WriteKind


def is_restore(names: Names, write: Write, name: str, target: str, frame: Frame | None) -> bool:
    """Whether everything that may be written is what was there before."""
    found = names.of(write.value, frame)
    if found and all(one.kind in (Kind.FUNCTION, Kind.CLASS) and one.name == target for one in found):
        return True
    return _is_original(write.value, spelled(write.base), name, frozenset())


def _is_original(value: ast.AST | None, base: str, name: str, seen: frozenset[str]) -> bool:
    """Whether a value was read from the same attribute, through names and attributes that kept it."""
    if isinstance(value, ast.Call) and len(value.args) > 1 and last_name(value.func) == "getattr":
        return text_of(value.args[1]) == name and spelled(value.args[0]) == base != ""
    if isinstance(value, ast.Attribute):
        return _is_kept(value, base, name, seen)
    if isinstance(value, ast.Name) and value.id not in seen:
        bindings = [one for one in scope_of(value).bindings(value.id) if one.value is not None]
        return any(_is_original(one.value, base, name, seen | {value.id}) for one in bindings)
    return False


def _is_kept(value: ast.Attribute, base: str, name: str, seen: frozenset[str]) -> bool:
    if value.attr == name:
        owner = spelled(value.value)
        if owner == base:
            return True
    if value.attr in seen:
        return False
    stores = [one for one in scope_of(value).module.stores if isinstance(one.target, ast.Attribute)]
    kept = [one for one in stores if isinstance(one.target, ast.Attribute) and one.target.attr == value.attr]
    return any(
        _is_original(one.value, spelled(one.target.value), name, seen | {value.attr})
        for one in kept
        if one.value is not None
    )


def is_temporary(write: Write, name: str) -> bool:
    """Whether the function around a write puts the same attribute back: in a `finally`, or behind a `yield`."""
    function = scope_of(write.place).function()
    is_mock = write.kind == WriteKind.MOCK
    if function is None or isinstance(function.node, ast.Lambda):
        return is_mock
    yields = [each.lineno for each in own_nodes(function.node, ast.Yield, ast.YieldFrom)]
    for store in function.module.stores:
        if not isinstance(store.target, ast.Attribute) or store.target.attr != name or store.target is write.place:
            continue
        around = list(ancestors(store.target))
        if any(parent is function.node for parent, _ in around):
            in_finally = any(
                is_try(parent) and any(child is one for one in parent.finalbody) for parent, child in around
            )
            if in_finally or (yields and min(yields) < store.target.lineno):
                return True
    return is_mock and any(isinstance(parent, ast.withitem) for parent, _ in ancestors(write.place))
