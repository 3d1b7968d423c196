"""One finding per patch: tell installs from restores, and find the backup, flag, restore and toggle lines of each."""

from __future__ import annotations

import ast
import re

from mcore_unpatch.findings import Related
from mcore_unpatch.scanner.installs import Install
from mcore_unpatch.scanner.resolve import Resolver
from mcore_unpatch.scanner.scopes import Scope, Site, path_text

_KEPT = re.compile(r"orig|backup|\bbak|_bak|saved|\bold|_old|prev|unpatched|_real\b|vanilla|default_", re.IGNORECASE)


def split_restores(installs: list[Install], resolver: Resolver) -> list[Install]:
    """Installs without the restores among them; each restore is attached to the installs it takes back."""
    backups = backup_attributes(resolver)
    restores, kept = [], []
    for install in installs:
        verdict = _restores(install, resolver, backups)
        repeated = any(_same(install, other) for other in installs if other is not install)
        if verdict == "yes" or (verdict == "maybe" and repeated):
            restores.append(install)
        else:
            kept.append(install)
    for restore in restores:
        for install in kept:
            if _same(restore, install):
                install.restores.append(restore.site)
    _attach_deletions(kept, resolver)
    return kept


def _same(one: Install, other: Install) -> bool:
    return one.owner == other.owner and one.attribute == other.attribute


def backup_attributes(resolver: Resolver) -> dict[str, str]:
    """`x.kept = x.name`: kept -> name, over the whole module."""
    found = {}
    for site in resolver.model.sites:
        if isinstance(site.target, ast.Attribute) and isinstance(site.value, ast.Attribute):
            if site.target.attr != site.value.attr:
                found[site.target.attr] = site.value.attr
    return found


def _restores(install: Install, resolver: Resolver, backups: dict[str, str]) -> str:
    """Whether an assignment puts the original back: yes, maybe (it is called so), or no."""
    value = install.value
    if value is None or install.mock:
        return "no"
    ref = resolver.expr(value, install.site.scope, install.site.block, install.site.node.lineno)
    if ref is not None and ref.kind == "local-function":
        return "no"
    if ref is not None and ref.is_core and ref.name == install.target and not ref.via and ref.node is None:
        return "yes"
    if isinstance(value, ast.Attribute) and backups.get(value.attr) == install.attribute:
        return "yes"
    if isinstance(value, ast.Call) and (path_text(value.func) or "").rpartition(".")[2] not in {
        "getattr",
        "get",
        "pop",
    }:
        return "no"
    if isinstance(value, ast.Name | ast.Attribute | ast.Subscript | ast.Call) and _KEPT.search(ast.unparse(value)):
        return "maybe"
    return "no"


def _attach_deletions(installs: list[Install], resolver: Resolver) -> None:
    """`del obj.name` and `delattr(obj, "name")` give the class's own method back; an exit stack does it later."""
    for site in (*resolver.model.sites, *resolver.model.calls):
        name: str | None = None
        if isinstance(site.node, ast.Delete) and isinstance(site.target, ast.Attribute):
            name = site.target.attr
        elif isinstance(site.node, ast.Call) and path_text(site.node.func) == "delattr" and len(site.node.args) == 2:
            name = resolver.string(site.node.args[1], site.scope, site.block, site.node.lineno)
        elif _is_callback(site) and isinstance(site.node, ast.Call) and len(site.node.args) == 4:
            if path_text(site.node.args[0]) == "setattr":
                name = resolver.string(site.node.args[2], site.scope, site.block, site.node.lineno)
        for install in installs:
            if name is not None and install.attribute == name:
                install.restores.append(site)


def related_lines(install: Install, resolver: Resolver) -> tuple[Related, ...]:
    """The lines that belong to a patch, by role."""
    found = {Related(site.node.lineno, "restore") for site in install.restores}
    found |= {Related(line, "backup") for line in _backups(install, resolver)}
    flags, toggles = _flags(install, resolver)
    taken = {item.line for item in found} | {install.node.lineno}  # type: ignore[attr-defined]
    found |= {Related(line, "flag") for line in flags - taken}
    found |= {Related(line, "toggle") for line in toggles - taken - flags}
    return tuple(sorted(item for item in found if item.line != install.node.lineno))  # type: ignore[attr-defined]


def _backups(install: Install, resolver: Resolver) -> set[int]:
    lines = set()
    for site in resolver.model.sites:
        if isinstance(site.target, ast.Attribute) and site.value is not None and _reads(install, site.value):
            if site.target.attr != install.attribute and _near(install, site.scope):
                lines.add(site.node.lineno)
    for scope in _scopes_near(install, resolver):
        for bindings in scope.bindings.values():
            for binding in bindings:
                if binding.kind == "value" and isinstance(binding.node, ast.expr) and _reads(install, binding.node):
                    lines.add(binding.line)
    return lines


def _reads(install: Install, value: ast.expr) -> bool:
    """Whether `value` is the attribute a patch replaces, read from the same object."""
    if isinstance(value, ast.Call) and path_text(value.func) == "getattr" and len(value.args) >= 2:
        name = value.args[1]
        if isinstance(name, ast.Constant) and name.value == install.attribute:
            return install.base is None or ast.dump(value.args[0]) == ast.dump(install.base)
        return False
    if not isinstance(value, ast.Attribute) or value.attr != install.attribute:
        return False
    return install.base is None or ast.dump(value.value) == ast.dump(install.base)


def _near(install: Install, scope: Scope) -> bool:
    return scope.kind == "module" or scope.function is install.site.scope.function


def _scopes_near(install: Install, resolver: Resolver) -> list[Scope]:
    near: list[Scope] = [resolver.model.scope]
    scope: Scope | None = install.site.scope
    while scope is not None:
        near.append(scope)
        scope = scope.parent
    return near


def _flags(install: Install, resolver: Resolver) -> tuple[set[int], set[int]]:
    """Lines that note on the patched object, or in a global, that the patch is on; and where else they are set."""
    if install.base is None:
        return set(), set()
    base = ast.dump(install.base)
    here: set[int] = set()
    elsewhere: dict[str, set[int]] = {}
    names: set[str] = set()
    for name, site in _constant_writes(resolver, base):
        if site.scope.function is install.site.scope.function:
            here.add(site.node.lineno)
            names.add(name)
        else:
            elsewhere.setdefault(name, set()).add(site.node.lineno)
    function = install.site.scope.function
    if function is not None:
        first, last = function.node.lineno, function.node.end_lineno or 0  # type: ignore[attr-defined]
        for name in function.globals:
            lines = {b.line for b in resolver.model.scope.bindings.get(name, []) if isinstance(b.node, ast.Constant)}
            inside = {line for line in lines if first <= line <= last}
            here |= inside
            if inside:
                module_level = min(lines)
                elsewhere.setdefault(name, set()).update(lines - inside - {module_level})
                names.add(name)
    return here, set().union(*(elsewhere.get(name, set()) for name in names))


def _constant_writes(resolver: Resolver, base: str) -> list[tuple[str, Site]]:
    """Plain data written to the object: `obj.flag = True`, `setattr(obj, "flag", True)`."""
    found = []
    for site in resolver.model.sites:
        if isinstance(site.target, ast.Attribute) and isinstance(site.value, ast.Constant | ast.Name):
            if ast.dump(site.target.value) == base and not _names_function(site.value, site, resolver):
                found.append((site.target.attr, site))
    for site in resolver.model.calls:
        call = site.node
        if isinstance(call, ast.Call) and path_text(call.func) == "setattr" and len(call.args) == 3:
            if ast.dump(call.args[0]) == base and isinstance(call.args[2], ast.Constant):
                found.append((ast.unparse(call.args[1]), site))
    return found


def _names_function(value: ast.expr, site: Site, resolver: Resolver) -> bool:
    if isinstance(value, ast.Constant):
        return False
    ref = resolver.expr(value, site.scope, site.block, site.node.lineno)
    return ref is not None and ref.kind in {"local-function", "function", "class"}


def is_temporary(install: Install) -> bool:
    """Whether the patch is undone by a `finally`, a generator (context manager, fixture) or an `__exit__`."""
    if install.mock:
        return True
    function = install.site.scope.function
    for site in install.restores:
        other = site.scope.function
        if function is None or other is None:
            continue
        if other is function or _encloses(function, other) or _encloses(other, function):
            if _in_finally(site) or _is_generator(function.node) or _is_callback(site):
                return True
        names = (getattr(function.node, "name", ""), getattr(other.node, "name", ""))
        if function.parent is other.parent and names in {("__enter__", "__exit__"), ("__aenter__", "__aexit__")}:
            return True
    return False


def _encloses(outer: Scope, inner: Scope) -> bool:
    scope: Scope | None = inner
    while scope is not None:
        if scope is outer:
            return True
        scope = scope.parent
    return False


def _in_finally(site: Site) -> bool:
    block = site.block
    while block is not None:
        if block.kind == "finally":
            return True
        if block.kind == "function":
            return False
        block = block.parent  # type: ignore[assignment]
    return False


def _is_callback(site: Site) -> bool:
    """`stack.callback(setattr, obj, "name", original)`."""
    return (
        isinstance(site.node, ast.Call)
        and isinstance(site.node.func, ast.Attribute)
        and site.node.func.attr == "callback"
    )


def _is_generator(node: ast.AST) -> bool:
    stack = list(getattr(node, "body", []))
    while stack:
        current = stack.pop()
        if isinstance(current, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(current, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            stack.extend(ast.iter_child_nodes(current))
    return False
