"""Registries of dotted names: a register call, a decorator, or a table of names and functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mcore_unpatch.megatron import api
from mcore_unpatch.megatron.roots import within
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.shapes.install import Install, core_target
from mcore_unpatch.scanner.sources.scopes import Site, path_text

_REGISTERS = re.compile(r"register|patch|replace|override|substitute|swap|monkey|adapt|wrap", re.IGNORECASE)
_TAKES_BACK = re.compile(r"unpatch|remove|unregister|restore|revert|undo|clear|pop", re.IGNORECASE)


def from_register_call(site: Site, resolver: Resolver, text: str) -> list[Install]:
    """`register("megatron.core....", fn)` or the same as a decorator."""
    call = site.node
    assert isinstance(call, ast.Call)
    leaf = text.rpartition(".")[2] or (call.func.attr if isinstance(call.func, ast.Attribute) else "")
    if not _REGISTERS.search(leaf) or _TAKES_BACK.search(leaf):
        return []
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    for index, value in enumerate(values):
        dotted = resolver.string(value, site.scope, site.block, call.lineno)
        if dotted is None or not within(dotted):
            continue
        others = [v for i, v in enumerate(values) if i != index and not isinstance(v, ast.Constant)]
        symbol = api.lookup(dotted)
        if symbol is not None and symbol.kind == "module" and not others:
            continue  # a label or a module to import, no name to replace
        names = [v for v in values[index + 1 : index + 2] if isinstance(v, ast.Constant) and isinstance(v.value, str)]
        if names and symbol is not None and symbol.kind == "class":
            dotted = f"{symbol.name}.{names[0].value!s}"  # register("megatron...Cls", "method", fn)
        target = core_target(dotted)
        replacement = others[0] if others else _decorated_name(site)
        owner, _, attribute = target.rpartition(".")
        return [Install(site, call, target, "string-target", True, "", replacement, owner, attribute, None)]
    return []


def from_literal(site: Site, resolver: Resolver) -> list[Install]:
    """`PATCHES = {"megatron.core....": fn}` and lists of (name, fn) pairs."""
    statement = site.statement
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    names = [path_text(target) or "" for target in targets if target is not None]
    if isinstance(site.scope.node, ast.ClassDef):
        names.append(site.scope.node.name)
    return _table(site, site.value) if any(_REGISTERS.search(name.rpartition(".")[2]) for name in names) else []


def from_table_method(site: Site) -> list[Install]:
    """`patches.extend([...])` and `patches.append((name, fn))`."""
    call = site.node
    assert isinstance(call, ast.Call)
    if (
        not isinstance(call.func, ast.Attribute)
        or call.func.attr not in {"extend", "append", "update"}
        or not call.args
    ):
        return []
    if not _REGISTERS.search(path_text(call.func.value) or ""):
        return []
    first = call.args[0]
    if call.func.attr == "append":
        first = ast.copy_location(ast.List([first], ast.Load()), first)
    return _table(site, first)


def _table(site: Site, table: ast.expr | None) -> list[Install]:
    """One patch per dotted name that a table pairs with a function."""
    found = []
    for key, value in pairs(table):
        dotted = _dotted(key)
        if dotted is None or isinstance(value, ast.Constant):
            continue
        target = core_target(dotted)
        owner, _, attribute = target.rpartition(".")
        found.append(Install(site, key, target, "string-target", True, "", value, owner, attribute, None))
    return found


def pairs(node: ast.expr | None) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(key, value) of a dict display, or of a list of pairs or two-argument calls."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(value, ast.List | ast.Tuple | ast.Dict) and _dotted(key) is None:
                yield from pairs(value)  # a table for each group of names
            elif key is not None:
                yield key, value
    elif isinstance(node, ast.List | ast.Tuple | ast.Set):
        for item in node.elts:
            if isinstance(item, ast.Tuple | ast.List) and len(item.elts) >= 2:
                yield item.elts[0], item.elts[1]
            elif isinstance(item, ast.Call) and len(item.args) >= 2:
                yield item.args[0], item.args[1]


def _dotted(key: ast.expr | None) -> str | None:
    """The name of Megatron's that a key is."""
    text = key.value if isinstance(key, ast.Constant) else None
    return text if isinstance(text, str) and within(text) else None


def _decorated_name(site: Site) -> ast.expr | None:
    if site.decorated is None:
        return None
    return ast.copy_location(ast.Name(site.decorated.name, ast.Load()), site.node)
