"""Registries of dotted names: a register call, a decorator, or a table of names and functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from mcore_unpatch.code.expressions import dotted
from mcore_unpatch.code.module import Module, qualified, scope_of
from mcore_unpatch.code.names import Names
from mcore_unpatch.code.syntax import last_name, parent_of, spelled, text_of
from mcore_unpatch.code.values import Kind, Value, texts
from mcore_unpatch.library.interface import SymbolKind
from mcore_unpatch.patches.records import Patch, Spelling

_VERBS = re.compile(r"patch|replace|register|override|wrap|inject|swap|substitute|monkey|adapt", re.I)
_OTHER_MEANING = ("patch", "import_module", "replace")  # of mocks, of imports, of texts
_DISPLAYS = (ast.Tuple, ast.List, ast.Dict)


def registered(names: Names, module: Module) -> Iterator[Patch]:
    """`register_patch("lib.module.name", fn)`: a function whose name says so is given a dotted name of the library."""
    for call in module.calls:
        if not call.args or last_name(call.func) in _OTHER_MEANING or not _VERBS.search(spelled(call.func)):
            continue
        below = _decorated(call)
        if len(call.args) + len(call.keywords) < 2 and below is None:
            continue
        for value in names.of(call.args[0]):
            if value.kind == Kind.TEXT and names.library.within(value.name):
                made = below or next((one for each in call.args[1:] if (one := defined(names, each))), None)
                patch = _named(names, value, call, made)
                if patch is not None:
                    yield patch


def _decorated(call: ast.Call) -> Value | None:
    """The definition that a call is a decorator of."""
    below = parent_of(call)
    if not isinstance(below, (ast.FunctionDef, ast.ClassDef)) or not any(call is one for one in below.decorator_list):
        return None
    return Value(Kind.CLASS if isinstance(below, ast.ClassDef) else Kind.FUNCTION, qualified(below), below)


def defined(names: Names, node: ast.AST) -> Value | None:
    """What an expression, or a dotted text, names that the repository defines."""
    found = names.of(node)
    near = scope_of(node).module.path
    found += tuple(value for text in texts(found) if "." in text for value in dotted(names, text, near))
    return next((one for one in found if one.node is not None and one.kind in (Kind.FUNCTION, Kind.CLASS)), None)


def _named(names: Names, text: Value, call: ast.Call, made: Value | None) -> Patch | None:
    in_table = text.node is not None and isinstance(parent_of(text.node), _DISPLAYS)
    place: Any = text.node if in_table else call
    symbol = names.library.symbol(text.name)
    is_replaced = symbol is not None and symbol.kind in (SymbolKind.CLASS, SymbolKind.FUNCTION)
    owner = names.library.symbol(text.name.rpartition(".")[0])
    has_owner = owner is not None and owner.kind in (SymbolKind.MODULE, SymbolKind.CLASS)
    if is_replaced or (has_owner and not (symbol is not None and symbol.kind == SymbolKind.MODULE)):
        target = symbol.name if symbol is not None and is_replaced else text.name
        return Patch(scope_of(place).module, place, target, Spelling.STRING_TARGET, replacement=made)
    return None


def tabled(names: Names, module: Module) -> Iterator[Patch]:
    """`("lib.module.name", fn)` in a file that patches: one row of a table."""
    rows = [
        row for row in module.rows if not isinstance(row, ast.Dict) and names.library.within(text_of(row.elts[0]) or "")
    ]
    if not rows or not _VERBS.search(module.path + " ".join(spelled(call.func) for call in module.calls)):
        return
    for row in rows:
        assert not isinstance(row, ast.Dict)
        symbol = names.library.symbol(text_of(row.elts[0]) or "")
        kinds = (Kind.FUNCTION, Kind.CLASS, Kind.OTHER)
        made = defined(names, row.elts[1]) or next((one for one in names.of(row.elts[1]) if one.kind in kinds), None)
        if made is not None and symbol is not None and symbol.kind in (SymbolKind.FUNCTION, SymbolKind.CLASS):
            yield Patch(module, row.elts[0], symbol.name, Spelling.STRING_TARGET, replacement=made)
