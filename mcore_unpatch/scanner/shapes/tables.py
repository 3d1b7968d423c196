"""Tables of dotted names that a loop takes apart: `setattr(import_module(module), name, fn)` for each row."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.megatron.roots import within
from mcore_unpatch.scanner.names.resolver import Ref, Resolver
from mcore_unpatch.scanner.names.strings import strings
from mcore_unpatch.scanner.shapes import fillings
from mcore_unpatch.scanner.shapes.assignments import is_setattr
from mcore_unpatch.scanner.shapes.fillings import Filling
from mcore_unpatch.scanner.shapes.install import Install, core_target, parted
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import FunctionNode, Scope, Site, path_text

_STEPS = 6  # names that come from names


def from_rows(site: Site, resolver: Resolver) -> list[Install]:
    """What a `setattr` in a loop replaces, where object and name come from the texts of a row."""
    return _installs(site, site, resolver, {})


def from_call(site: Site, called: Ref, given: Filling) -> list[Install]:
    """The same where a function of another file is given the table."""
    home, function = called.home, called.node
    if home is None or not isinstance(function, FunctionNode):
        return []
    setters = [inner for inner in home.calls_in(function) if is_setattr(inner.call)]
    return [install for inner in setters for install in _installs(site, inner, home, given)]


def _installs(site: Site, setter: Site, home: Resolver, given: Filling) -> list[Install]:
    call = setter.node
    assert isinstance(call, ast.Call)
    subject, name, value = call.args
    if path_text(subject) is None and not isinstance(subject, ast.Call):
        return []
    found = []
    for row in fillings.rows_around(setter, home, given):
        texts = {path: known[0] for path, cell in row.items() if len(known := strings(*cell)) == 1}
        for path, dotted in texts.items():
            rest = _rest(path, texts, subject, name, setter.scope) if within(dotted) else None
            if rest is not None:
                cell, put = row[path], row.get(path_text(value) or "")
                target = core_target(f"{dotted}{rest}")
                new = put.node if put is not None else value
                # The row itself, if it is here.
                node = cell.node if cell.at.home is home and site is setter else site.node
                found.append(Install(site, node, target, "string-target", True, "", new, *parted(target)))
    return found


def _rest(path: str, texts: dict[str, str], subject: ast.expr, name: ast.expr, scope: Scope) -> str | None:
    """What is behind a dotted name that the object comes from: nothing, or the text that the name comes from."""
    if not _from(subject, path, scope):
        return None
    if _from(name, path, scope):
        return ""
    return next((f".{texts[other]}" for other in texts if other != path and _from(name, other, scope)), None)


def _from(node: ast.expr, name: str, scope: Scope, steps: int = _STEPS) -> bool:
    """Whether an expression is made from a name, through the names of its scope."""
    for used in _names(node):
        if used == name:
            return True
        for binding in scope.bindings_of(used) if steps else ():
            if binding.kind in {"value", "opaque"} and isinstance(binding.node, ast.expr):
                if _from(binding.node, name, scope, steps - 1):
                    return True
    return False


def _names(node: ast.expr) -> Iterator[str]:
    return (one.id for one in walk(node) if isinstance(one, ast.Name))
