"""Names of Megatron's objects, classes and modules that the repository sets itself before it reads them."""

from __future__ import annotations

import ast
from collections import defaultdict

from mcore_unpatch.judge import reached
from mcore_unpatch.judge.demands import IMPORT, INSTALL, Demand, itself
from mcore_unpatch.library.model import Model
from mcore_unpatch.scanner.names.resolver import Position, Resolver
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import FunctionNode, Scope, Site

_Stores = dict[str, list[Site]]


def is_supplied(demand: Demand, model: Model) -> bool:
    """Whether the file that reads an attribute has set it by then, so that a release need not have it."""
    home, here, name = demand.at.home, demand.at.scope.function, demand.name.rpartition(".")[2]
    sites = home.kept("stores", lambda: _stores(home)).get(name, []) if not demand.module else []
    if not sites:
        return False
    is_kept = not any(node.lineno == demand.line for node in _used(home, name))
    beside = any(site.scope.function is here for site in sites)
    if demand.when == IMPORT or (is_kept and (demand.when == INSTALL or beside)):
        sites = [site for site in sites if site.scope.function is here]  # it keeps the original, to put its own there
    return any(
        (site.scope.function is not here or site.node.lineno < demand.line)
        and not _reads(site, name)
        and _is_same_object(site, demand, home)
        and reached.on(model, home.at(site), ())
        for site in sites
    )


def is_used(home: Resolver, owner: str, name: str) -> bool:
    """Whether a file itself uses an attribute of a module, a class or an object of Megatron's."""
    places = ((node.value, home.on_line(node.lineno)) for node in _used(home, name))
    return any(_is_patched(holder, at.scope) or _is_of(at, holder, {owner}) for holder, at in places)


def _used(home: Resolver, name: str) -> list[ast.Attribute]:
    """The reads `x.name` that are called, or asked for an attribute, and not only kept."""
    return home.kept("used", lambda: _every_use(home)).get(name, [])


def _every_use(home: Resolver) -> dict[str, list[ast.Attribute]]:
    uses = defaultdict(list)
    for node in walk(home.model.tree):
        inner = node.func if isinstance(node, ast.Call) else node.value if isinstance(node, ast.Attribute) else None
        if isinstance(inner, ast.Attribute):
            uses[inner.attr].append(inner)
    return uses


def _stores(home: Resolver) -> _Stores:
    stores = defaultdict(list)
    for site in home.model.sites:
        if isinstance(site.target, ast.Attribute) and not isinstance(site.statement, ast.Delete):
            stores[site.target.attr].append(site)
    return stores


def _reads(site: Site, name: str) -> bool:
    """`x.name += 1`, `x.name = f(x.name)`."""
    given = walk(site.value) if site.value is not None else ()
    changes = isinstance(site.statement, ast.AugAssign)
    return changes or any(isinstance(node, ast.Attribute) and node.attr == name for node in given)


def _is_same_object(site: Site, demand: Demand, home: Resolver) -> bool:
    assert isinstance(site.target, ast.Attribute)
    read = demand.node.func if isinstance(demand.node, ast.Call) else demand.node
    if isinstance(read, ast.Attribute) and _is_patched(read.value, demand.at.scope):
        if _is_patched(site.target.value, site.scope):
            return True
    return _is_of(home.at(site), site.target.value, {name.rpartition(".")[0] for name in (demand.name, *demand.also)})


def _is_of(at: Position, holder: ast.expr, owners: set[str]) -> bool:
    ref = at.expr(holder)
    return ref is not None and ref.name in owners


def _is_patched(node: ast.expr, scope: Scope) -> bool:
    """`self` of a function that is no method of a class here: the object of Megatron's that it is put on."""
    function = scope.function
    if function is None or not isinstance(function.node, FunctionNode):
        return False
    is_method = function.parent is not None and function.parent.kind == "class"
    return isinstance(node, ast.Name) and node.id == itself(function.node) and not is_method
