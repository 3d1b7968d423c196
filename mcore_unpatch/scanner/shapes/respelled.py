"""Other ways to write `setattr`: under another name, in parts, over rows, as a method, for a child by its path."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.scanner.names.displays import elements
from mcore_unpatch.scanner.names.resolver import Position, Resolver
from mcore_unpatch.scanner.sources.scopes import Scope, Site, last_name, path_text

_SETATTR = {"setattr", "builtins.setattr"}
_CHILDREN = {"add_module", "register_module", "set_submodule"}
_STEPS = 3  # names that stand for names


def setattrs(site: Site, resolver: Resolver) -> Iterator[ast.Call]:
    """The calls `setattr(object, name, value)` that a call amounts to, where it is written otherwise."""
    call = site.call
    func, args = call.func, call.args
    if isinstance(func, ast.Attribute) and func.attr in _CHILDREN and len(args) == 2:
        yield from _child(call, func.value)
    elif isinstance(func, ast.Attribute) and func.attr == "__setattr__" and len(args) == 2:
        yield _setattr(call, [func.value, *args])
    elif last_name(func) in {"starmap", "map"} and args and _means_setattr(args[0], site.scope):
        yield from (_setattr(call, row) for row in _rows(call, resolver.at(site)))
    elif (path_text(func) or "") not in _SETATTR and (given := _given(func, site.scope)) is not None:
        yield _setattr(call, [*given, *args])


def _setattr(call: ast.Call, arguments: list[ast.expr]) -> ast.Call:
    return ast.copy_location(ast.Call(ast.Name("setattr", ast.Load()), arguments, []), call)


def _child(call: ast.Call, owner: ast.expr) -> Iterator[ast.Call]:
    """`model.set_submodule("decoder.final_layernorm", new)`."""
    path, value = call.args
    if isinstance(path, ast.Constant) and isinstance(path.value, str):
        *parents, name = path.value.split(".")
        for parent in parents:
            owner = ast.copy_location(ast.Attribute(owner, parent, ast.Load()), call)
        yield _setattr(call, [owner, ast.copy_location(ast.Constant(name), path), value])


def _given(func: ast.expr, scope: Scope, steps: int = _STEPS) -> list[ast.expr] | None:
    """What `setattr` is given before the call, if `func` stands for it: nothing, or the arguments of a `partial`."""
    if path_text(func) in _SETATTR:
        return []
    if isinstance(func, ast.Call) and last_name(func.func) == "partial" and func.args:
        inner = _given(func.args[0], scope, steps)
        return None if inner is None or func.keywords else [*inner, *func.args[1:]]
    if isinstance(func, ast.Name) and steps:
        values = [binding.node for binding in scope.bindings_of(func.id) if binding.kind == "value"]
        return _given(values[-1], scope, steps - 1) if values and isinstance(values[-1], ast.expr) else None
    return None


def _means_setattr(node: ast.expr, scope: Scope) -> bool:
    return _given(node, scope) == []


def _rows(call: ast.Call, at: Position) -> Iterator[list[ast.expr]]:
    """What `starmap` takes row by row and `map` column by column, where it is written out."""
    tables = [elements(table, at) for table in call.args[1:]]
    is_map = (path_text(call.func) or "").endswith("starmap") is False
    rows = [list(row) for row in zip(*tables, strict=False)] if is_map else [elements(row, at) for row in tables[0]]
    yield from (row for row in rows if len(row) == 3)
