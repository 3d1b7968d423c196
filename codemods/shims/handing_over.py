"""Old functions that hand over: each asks first whether its replacement could be imported, and calls that.

Where many files use them, or a test puts something else in their place: whoever imports them goes on as before.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from itertools import takewhile

from mcore_unpatch.codemods.changes import Insert, above, below
from mcore_unpatch.codemods.layout import in_rows, step_of
from mcore_unpatch.codemods.shims.definitions import Definition
from mcore_unpatch.codemods.syntax import body_of
from mcore_unpatch.editing.source import Function, Source

_NAME = "_on_hook"
_PLACES = 3  # from so many on
_IMPORTS = (ast.Import, ast.ImportFrom)
_NO_PLAIN_CALL = (ast.Yield, ast.YieldFrom, ast.Await)


def is_better(definition: Definition | None, places: int, replaced: Collection[str], known: Collection[str]) -> bool:
    """Whether the functions of a file had better hand over than be imported from somewhere else by those who use them.

    `places` use them, and tests put something else in the place of those that are `replaced`; `known` may be edited.
    """
    if definition is None or definition.source.path not in known or _NAME in definition.names:
        return False
    nodes = [unit.node for unit in definition.defined.values()]
    can = all(isinstance(node, ast.FunctionDef) and _calls_plainly(node) and body_of(node) for node in nodes)
    asked = places >= _PLACES or not definition.defined.keys().isdisjoint(replaced)
    return can and asked and _last_import(definition.source) is not None


def changes(definition: Definition, says: str) -> Iterator[Insert]:
    """The guarded import, behind those of the file, and the first lines of each function."""
    source, package = definition.source, definition.shim.compat.rpartition(".")
    step = step_of(source)
    imports = f"from {package[0]} import {package[2]} as {_NAME}"
    text = f"\ntry:  # {says}\n{step}{imports}\nexcept ImportError:\n{step}{_NAME} = None"
    if (last := _last_import(source)) is not None:
        yield below(last, text)
    for unit in definition.defined.values():
        assert isinstance(unit.node, ast.FunctionDef)
        yield above(source, body_of(unit.node)[0], _first_lines(source, unit.node))


def _last_import(source: Source) -> ast.stmt | None:
    """The last import above all functions and classes."""
    above_all = takewhile(lambda node: not isinstance(node, Function | ast.ClassDef), source.tree.body)
    return next((node for node in reversed([*above_all]) if isinstance(node, _IMPORTS)), None)


def _first_lines(source: Source, function: ast.FunctionDef) -> str:
    step, indent = step_of(source), source.indentation(body_of(function)[0])
    call = f"return {_NAME}.{function.name}({_passed_on(function.args)})"
    if len(indent + step + call) > source.width:
        opening, inside = call.index("(") + 1, len(call) - 1
        call = f"{call[:opening]}{in_rows(source, step, call[opening:inside])})"
    return f"if {_NAME} is not None:\n{step}{call}"


def _passed_on(spec: ast.arguments) -> str:
    """All parameters, as arguments."""
    rest = [f"*{spec.vararg.arg}"] if spec.vararg else []
    named = [f"{one.arg}={one.arg}" for one in spec.kwonlyargs]
    more = [f"**{spec.kwarg.arg}"] if spec.kwarg else []
    return ", ".join([*(one.arg for one in (*spec.posonlyargs, *spec.args)), *rest, *named, *more])


def _calls_plainly(function: ast.FunctionDef) -> bool:
    """Whether a call of it does what a call of another does that returns the same."""
    return not any(isinstance(node, _NO_PLAIN_CALL) for node in ast.walk(function))
