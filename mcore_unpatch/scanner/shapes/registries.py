"""Registries of dotted names: a register call, a decorator, or a table of names and functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mcore_unpatch.megatron import api
from mcore_unpatch.megatron.versions import within
from mcore_unpatch.scanner.names.expressions import member
from mcore_unpatch.scanner.names.resolver import Ref, Resolver
from mcore_unpatch.scanner.names.strings import string, strings
from mcore_unpatch.scanner.shapes import fillings
from mcore_unpatch.scanner.shapes.install import Install, core_target, parted
from mcore_unpatch.scanner.sources.scopes import FunctionNode, Site, last_attribute, path_text

_REGISTERS = re.compile(r"register|patch|replace|override|substitute|swap|monkey|adapt|wrap|set_?attr", re.IGNORECASE)
_PATCHES = re.compile(r"patch|replace|override|substitute|swap|monkey|wrap", re.IGNORECASE)
# A parameter that takes a word for people, or for a dict.
_LABEL = re.compile(r"(?:^|_)(?:id|key|label|tag|description)$")
_TWICE = re.compile(r"(.+\.(\w+))\.\2(\.\w+)$")  # a class behind itself
_TAKES_BACK = re.compile(r"unpatch|remove|unregister|restore|revert|undo|clear|pop", re.IGNORECASE)


def from_register_call(site: Site, resolver: Resolver) -> list[Install]:
    """`register("megatron.core....", fn)` or the same as a decorator; a table of such names."""
    call = site.call
    if not _is_called(call, _REGISTERS):
        return []
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    if tables := [install for value in values for install in _table(site, value)]:
        return tables
    for index, value in enumerate(values):
        dotted = string(value, resolver.at(site))
        if dotted is None or not within(dotted) or _is_label(value, site, resolver):
            continue
        others = [v for i, v in enumerate(values) if i != index and not isinstance(v, ast.Constant)]
        for name in call.args[index + 1 :]:  # register("megatron...Cls", "method", fn)
            if not (isinstance(name, ast.Constant) and isinstance(name.value, str) and _may_have(dotted, name.value)):
                break
            dotted = f"{dotted}.{name.value}"
        # Of `module.Cls.Cls.method` a registry finds the class, which has no class of its own name in it, or nothing.
        if (twice := _TWICE.match(dotted)) and (cls := api.lookup(twice[1])) and cls.kind == "class":
            dotted = f"{twice[1]}{twice[3]}"
        symbol = api.lookup(dotted)
        if symbol is not None and symbol.kind == "module" and not others:
            continue  # a label or a module to import, no name to replace
        if symbol is not None and symbol.kind == "class" and others and isinstance(others[0], ast.List | ast.Tuple):
            named = [(core_target(f"{dotted}.{last_attribute(one)}"), one) for one in others[0].elts if path_text(one)]
            return [Install(site, node, to, "string-target", True, "", node, *parted(to)) for to, node in named]
        target = core_target(dotted)
        replacement = others[0] if others else _decorated_name(site)
        install = Install(site, call, target, "string-target", True, "", replacement, *parted(target))
        install.named = "" if others else next(filter(None, map(_foreign_name, values)), "")
        return [install]
    return []


def _is_label(value: ast.expr, site: Site, resolver: Resolver) -> bool:
    """Whether the function of the repository that is called takes a value as the word for a patch."""
    called = resolver.at(site).expr(site.call.func)
    given = fillings.of_call(site.call, called, resolver.at(site)) if called is not None and called.node else {}
    return any(part.node is value and _LABEL.search(name) for name, part in given.items())


def from_patcher(site: Site, resolver: Resolver) -> list[Install]:
    """`patcher.replace(GPTModel, "forward", fn)`, `@patches(GPTModel)`: what is called does as its name says."""
    call = site.call
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    if not values or not _is_called(call, _PATCHES):
        return []
    at = resolver.at(site)
    base = at.expr(values[0])
    if base is None or not base.is_core or base.kind not in {"class", "module", "instance"}:
        return []
    names = strings(values[1], at) if len(values) > 1 else []
    new: list[ast.expr | None] = [v for v in values[2 if names else 1 :] if path_text(v) or isinstance(v, ast.Lambda)]
    if isinstance(site.decorated, FunctionNode):
        names, new = names or [site.decorated.name], [_decorated_name(site)]
    why = f"the name of `{ast.unparse(call.func)}`, which is given it"
    found = []
    for dotted in names if new else ():
        *path, name = dotted.split(".")
        owner: Ref | None = base
        for part in path:
            owner = member(owner, part, resolver) if owner is not None else None
        if owner is not None and owner.is_core and owner.has(name):
            target = f"{owner.name}.{name}"
            found.append(Install(site, call, target, "string-target", False, why, new[0], owner.name, name, values[0]))
    return found


def _may_have(dotted: str, name: str) -> bool:
    """Whether a dotted name is that of a class, or of a module that has such a name."""
    symbol = api.lookup(dotted)
    if symbol is None or symbol.kind != "module":
        return symbol is not None and symbol.kind == "class" and name.isidentifier()
    return api.in_module(symbol.name, name.partition(".")[0])


def _is_called(call: ast.Call, verb: re.Pattern[str]) -> bool:
    """Whether the name of what is called says that it patches, and not that it takes a patch back."""
    leaf = last_attribute(call.func)
    return bool(verb.search(leaf)) and not _TAKES_BACK.search(leaf)


def from_literal(site: Site, resolver: Resolver) -> list[Install]:
    """`PATCHES = {"megatron.core....": fn}` and lists of (name, fn) pairs."""
    statement = site.statement
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    names = [path_text(target) or "" for target in targets if target is not None]
    if isinstance(site.scope.node, ast.ClassDef):
        names.append(site.scope.node.name)
    return _table(site, site.value) if any(_REGISTERS.search(name.rpartition(".")[2]) for name in names) else []


def from_table_method(site: Site, _: Resolver) -> list[Install]:
    """`patches.extend([...])` and `patches.append((name, fn))`."""
    call = site.call
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
    rows = []
    for key, value in pairs(table):
        dotted = _dotted(key)
        if dotted is None or isinstance(value, ast.Constant):
            continue
        target = core_target(dotted)
        rows.append(Install(site, key, target, "string-target", True, "", value, *parted(target)))
    return rows


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


def _foreign_name(value: ast.expr) -> str:
    """`"own.module.name"`, which is none of Megatron's."""
    text = value.value if isinstance(value, ast.Constant) else None
    plain = isinstance(text, str) and "." in text and all(part.isidentifier() for part in text.split("."))
    return str(text) if plain and not within(str(text)) else ""


def _decorated_name(site: Site) -> ast.expr | None:
    if site.decorated is None:
        return None
    return ast.copy_location(ast.Name(site.decorated.name, ast.Load()), site.node)
