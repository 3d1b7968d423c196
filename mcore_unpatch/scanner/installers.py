"""Patches made through a call: `setattr`, a helper that does it, a registry of dotted names, rewritten source, mocks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mcore_unpatch.megatron import api
from mcore_unpatch.scanner.installs import (
    Install,
    core_target,
    dict_owner,
    from_setattr,
    parameter_of,
    set_by_name,
    whole_modules,
)
from mcore_unpatch.scanner.resolve import Resolver, argument
from mcore_unpatch.scanner.scopes import FunctionNode, Scope, Site, path_text

_REGISTERS = re.compile(r"register|patch|replace|override|substitute|swap|monkey|adapt|wrap", re.IGNORECASE)
_TAKES_BACK = re.compile(r"unpatch|remove|unregister|restore|revert|undo|clear|pop", re.IGNORECASE)
_MOCKERS = re.compile(r"(?:^|\.)(?:mock|mocker)\.patch(?:\.|$)|^patch(?:\.|$)|(?:^|\.)monkeypatch\.|^mp\.set(?:attr|item)$")


def from_call(site: Site, resolver: Resolver) -> list[Install]:
    """The patches one call makes."""
    call = site.node
    assert isinstance(call, ast.Call)
    text = path_text(call.func) or ""
    if _is_mock(text, site, resolver):
        return _mocked(site, resolver, text)
    if text.endswith("setattr") or text.endswith("__setattr__"):
        return [] if _is_parametric(site) else from_setattr(site, resolver)
    return (
        _registered(site, resolver, text)
        or _added_to_table(site)
        or _dict_update(site, resolver)
        or _by_helper(site, resolver)
    )


# --- a helper of the repository that does the setattr --------------------------------------------------------------


def _is_parametric(site: Site) -> bool:
    """`setattr(obj, name, ...)` where the function around it takes the name: its callers are the patches."""
    call = site.node
    assert isinstance(call, ast.Call)
    if len(call.args) != 3:
        return False
    name = call.args[1]
    if isinstance(name, ast.Attribute) and name.attr == "__name__":
        name = name.value
    return parameter_of(name, site.scope) is not None and parameter_of(call.args[0], site.scope) is not None


def _by_helper(site: Site, resolver: Resolver) -> list[Install]:
    """A call of a function of the repository that sets an attribute of one of its parameters by name."""
    call = site.node
    assert isinstance(call, ast.Call)
    if not call.args and not call.keywords:
        return []
    if not any(_may_be_core(value) for value in (*call.args, *(k.value for k in call.keywords))):
        return []
    called = resolver.expr(call.func, site.scope, site.block, call.lineno)
    if called is None or called.kind != "local-function" or called.home is None:
        return []
    function = called.node
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    found = _rewritten_by_helper(site, resolver, called.home, function)
    for inner in _setattrs_in(called.home, function) if not found else ():
        found += _through(site, resolver, function, inner)
    if not found and called.home is not resolver:
        found = _assigned_by_helper(site, resolver, called.home, function)
    return found


def _assigned_by_helper(site: Site, resolver: Resolver, home: Resolver, function: FunctionNode) -> list[Install]:
    """A helper of another file that assigns to a fixed attribute of its parameter: `obj.__class__ = ...`."""
    call = site.node
    assert isinstance(call, ast.Call)
    found = []
    for inner in home.model.sites:
        target = inner.target
        inside = function.lineno <= inner.node.lineno <= (function.end_lineno or 0)
        if not inside or not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name):
            continue
        if inner.value is None or isinstance(inner.value, ast.Constant) or parameter_of(target.value, inner.scope) is None:
            continue
        passed = argument(call, function, target.value.id, False)
        base = resolver.expr(passed, site.scope, site.block, call.lineno) if passed is not None else None
        if passed is not None and base is not None and base.is_core:
            found += set_by_name(site, resolver, passed, base, [target.attr], inner.value)
            for install in found:
                install.shape = "class-of-instance" if target.attr == "__class__" else "instance-attr"
    return found


def _may_be_core(value: ast.expr) -> bool:
    text = path_text(value)
    return text is not None or (isinstance(value, ast.Constant) and str(value.value).startswith(api.ROOT))


def _setattrs_in(home: Resolver, function: FunctionNode) -> Iterator[ast.Call]:
    for other in home.model.calls:
        call = other.node
        if isinstance(call, ast.Call) and path_text(call.func) == "setattr" and len(call.args) == 3:
            inside = function.lineno <= call.lineno <= (function.end_lineno or 0)
            if inside and parameter_of(call.args[0], other.scope) is not None:
                yield call


def _through(site: Site, resolver: Resolver, function: FunctionNode, inner: ast.Call) -> list[Install]:
    """The patch made by `inner`, the helper's setattr, with the arguments of this call put in."""
    call = site.node
    assert isinstance(call, ast.Call)

    def given(node: ast.expr) -> ast.expr | None:
        return argument(call, function, node.id, False) if isinstance(node, ast.Name) else None

    subject = given(inner.args[0])
    if subject is None:
        return []
    base = resolver.expr(subject, site.scope, site.block, call.lineno)
    if base is None or not base.is_core:
        return []
    if isinstance(inner.args[2], ast.Constant):
        return []  # the helper only leaves a mark
    name_node = inner.args[1]
    names: list[str] = []
    value = given(inner.args[2])
    if isinstance(name_node, ast.Constant):
        names = [str(name_node.value)]
    elif passed := given(name_node):
        names = resolver.strings(passed, site.scope, site.block, call.lineno)
    elif isinstance(name_node, ast.Attribute) and name_node.attr == "__name__" and site.decorated is not None:
        names = [site.decorated.name]  # @patch_method(GPTModel) above `def forward`
    own = {arg.arg for arg in [*function.args.args, *function.args.kwonlyargs]}
    if value is None and isinstance(inner.args[2], ast.Name) and inner.args[2].id in own:
        return []  # a default of the helper's: a mark, not a function
    if value is None:
        value = ast.copy_location(ast.Name(site.decorated.name if site.decorated else "", ast.Load()), call)
    return set_by_name(site, resolver, subject, base, names, value)


# --- registries of dotted names ---------------------------------------------------------------------------------------


def _registered(site: Site, resolver: Resolver, text: str) -> list[Install]:
    """`register("megatron.core....", fn)` or the same as a decorator."""
    call = site.node
    assert isinstance(call, ast.Call)
    leaf = text.rpartition(".")[2] or (call.func.attr if isinstance(call.func, ast.Attribute) else "")
    if not _REGISTERS.search(leaf) or _TAKES_BACK.search(leaf):
        return []
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    for index, value in enumerate(values):
        dotted = resolver.string(value, site.scope, site.block, call.lineno)
        if dotted is None or not dotted.startswith(api.ROOT + "."):
            continue
        others = [v for i, v in enumerate(values) if i != index and not isinstance(v, ast.Constant)]
        symbol = api.lookup(dotted)
        if symbol is not None and symbol.kind == "module" and not others:
            continue  # a label or a module to import, no name to replace
        names = [v for v in values[index + 1 : index + 2] if isinstance(v, ast.Constant) and isinstance(v.value, str)]
        if names and symbol is not None and symbol.kind == "class":
            dotted = f"{symbol.name}.{names[0].value}"  # register("megatron...Cls", "method", fn)
        target = core_target(dotted)
        replacement = others[0] if others else _decorated_name(site)
        owner, _, attribute = target.rpartition(".")
        return [Install(site, call, target, "string-target", True, "", replacement, owner, attribute, None)]
    return []


def _decorated_name(site: Site) -> ast.expr | None:
    if site.decorated is None:
        return None
    return ast.copy_location(ast.Name(site.decorated.name, ast.Load()), site.node)


def from_literal(site: Site, resolver: Resolver) -> list[Install]:
    """`PATCHES = {"megatron.core....": fn}` and lists of (name, fn) pairs."""
    statement = site.statement
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    names = [path_text(target) or "" for target in targets if target is not None]
    return _table(site, site.value) if any(_REGISTERS.search(name.rpartition(".")[2]) for name in names) else []


def _table(site: Site, table: ast.expr | None) -> list[Install]:
    """One patch per dotted name that a table pairs with a function."""
    found = []
    for key, value in _pairs(table):
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value.startswith(api.ROOT + ".")):
            continue
        if isinstance(value, ast.Constant):
            continue
        target = core_target(key.value)
        owner, _, attribute = target.rpartition(".")
        found.append(Install(site, key, target, "string-target", True, "", value, owner, attribute, None))
    return found


def _added_to_table(site: Site) -> list[Install]:
    """`patches.extend([...])` and `patches.append((name, fn))`."""
    call = site.node
    assert isinstance(call, ast.Call)
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in {"extend", "append", "update"} or not call.args:
        return []
    if not _REGISTERS.search(path_text(call.func.value) or ""):
        return []
    first = call.args[0]
    if call.func.attr == "append":
        first = ast.copy_location(ast.List([first], ast.Load()), first)
    return _table(site, first)


def _pairs(node: ast.expr | None) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.Dict):
        yield from ((k, v) for k, v in zip(node.keys, node.values, strict=True) if k is not None)
    elif isinstance(node, ast.List | ast.Tuple | ast.Set):
        for item in node.elts:
            if isinstance(item, ast.Tuple | ast.List) and len(item.elts) >= 2:
                yield item.elts[0], item.elts[1]
            elif isinstance(item, ast.Call) and len(item.args) >= 2:
                yield item.args[0], item.args[1]


def _dict_update(site: Site, resolver: Resolver) -> list[Install]:
    """`module.__dict__.update(name=fn)` and `sys.modules.update({...})`."""
    call = site.node
    assert isinstance(call, ast.Call)
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in {"update", "setdefault", "__setitem__"}:
        return []
    entries: list[tuple[str, ast.expr]] = [(k.arg, k.value) for k in call.keywords if k.arg]
    if call.args and isinstance(call.args[0], ast.Dict):
        entries += [(str(getattr(k, "value", "")), v) for k, v in _pairs(call.args[0])]
    elif call.func.attr != "update" and len(call.args) == 2:
        entries += [(n, call.args[1]) for n in resolver.strings(call.args[0], site.scope, site.block, call.lineno)]
    if path_text(call.func.value) == "sys.modules":
        return whole_modules(site, [key for key, _ in entries], entries[0][1]) if entries else []
    holder = dict_owner(call.func.value)
    base = resolver.expr(holder, site.scope, site.block, call.lineno) if holder is not None else None
    if holder is None or base is None or not base.is_core:
        return []
    found = [i for name, value in entries for i in set_by_name(site, resolver, holder, base, [name], value)]
    for install in found:
        install.shape = "sys-modules" if base.kind == "module" else "instance-attr"
    return found


# --- source text taken, edited and exec'd ------------------------------------------------------------------------------


def from_source_rewrite(resolver: Resolver) -> list[Install]:
    """`inspect.getsource(X)` and `exec` in one function: one patch of X, at the `exec`."""
    found = []
    for site in resolver.model.calls:
        subject = _source_subject(site)
        runner = subject and _exec_in(resolver, site.scope)
        if subject is None or runner is None:
            continue
        ref = resolver.expr(subject, site.scope, site.block, site.node.lineno)
        if ref is not None and ref.is_core and parameter_of(subject, site.scope) is None:
            owner, _, attribute = ref.name.rpartition(".")
            found.append(
                Install(runner, runner.node, ref.name, "source-rewrite", ref.sure, ref.why, None, owner, attribute)
            )
    return found


def _source_subject(site: Site) -> ast.expr | None:
    call = site.node
    if isinstance(call, ast.Call) and (path_text(call.func) or "").rpartition(".")[2] in {"getsource", "getsourcelines"}:
        return call.args[0] if call.args else None
    return None


def _exec_in(resolver: Resolver, scope: Scope) -> Site | None:
    for site in resolver.model.calls:
        if isinstance(site.node, ast.Call) and path_text(site.node.func) in {"exec", "builtins.exec"}:
            if site.scope.function is scope.function:
                return site
    return None


def _rewritten_by_helper(site: Site, resolver: Resolver, home: Resolver, function: FunctionNode) -> list[Install]:
    """A call of a function of the repository that rewrites the source of what it is given."""
    call = site.node
    assert isinstance(call, ast.Call)
    scope = home.model.functions.get(function)
    for inner in home.model.calls:
        subject = _source_subject(inner)
        if subject is None or inner.scope is not scope or _exec_in(home, scope) is None:
            continue
        for name in _names_behind(subject, scope):
            passed = argument(call, function, name, False)
            ref = resolver.expr(passed, site.scope, site.block, call.lineno) if passed is not None else None
            if ref is None or not ref.is_core:
                continue
            target = ref.name
            strings = [s for a in call.args for s in resolver.strings(a, site.scope, site.block, call.lineno)]
            if ref.kind in {"class", "module"}:
                named = next((s for s in strings if s.isidentifier() and _has_member(ref.kind, ref.name, s)), None)
                target = f"{ref.name}.{named}" if named else ref.name
            owner, _, attribute = target.rpartition(".")
            return [Install(site, call, target, "source-rewrite", ref.sure, ref.why, None, owner, attribute)]
    return []


def _names_behind(node: ast.AST, scope: Scope | None, depth: int = 3) -> list[str]:
    """The names an expression uses, and those that the local names among them were made from."""
    found: list[str] = []
    for item in ast.walk(node):
        if isinstance(item, ast.Name):
            found.append(item.id)
            for binding in scope.bindings.get(item.id, []) if scope is not None and depth else ():
                if binding.kind == "value" and binding.node is not None:
                    found += _names_behind(binding.node, scope, depth - 1)
    return found


def _has_member(kind: str, owner: str, name: str) -> bool:
    return api.has_callable(owner, name) if kind == "class" else api.in_module(owner, name)


# --- mocks ------------------------------------------------------------------------------------------------------------


def _is_mock(text: str, site: Site, resolver: Resolver) -> bool:
    if not _MOCKERS.search(text):
        return False
    root = text.partition(".")[0]
    if root != "patch":
        return True
    ref = resolver.expr(ast.Name(root, ast.Load()), site.scope, site.block, site.node.lineno)
    return ref is None or (ref.kind == "external" and "mock" in ref.name)


def _mocked(site: Site, resolver: Resolver, text: str) -> list[Install]:
    call = site.node
    assert isinstance(call, ast.Call)
    leaf = text.rpartition(".")[2]
    if not call.args:
        return []
    first = call.args[0]
    second = call.args[1] if len(call.args) > 1 else None

    def install(target: str) -> list[Install]:
        owner, _, attribute = target.rpartition(".")
        return [Install(site, call, target, "mock", True, "", None, owner, attribute, mock=True)]

    dotted = resolver.string(first, site.scope, site.block, call.lineno)
    if dotted is not None and (dotted == api.ROOT or dotted.startswith(api.ROOT + ".")):
        return install(core_target(dotted))
    if leaf in {"dict", "setitem", "delitem"} and (path_text(first) or dotted or "").endswith("sys.modules"):
        keys = second.keys if isinstance(second, ast.Dict) else [second]
        names = [n for key in keys for n in resolver.strings(key, site.scope, site.block, call.lineno)]
        return [i for n in names if n.startswith(api.ROOT) for i in install(n)]
    if leaf in {"object", "setattr", "delattr", "multiple"}:
        base = resolver.expr(first, site.scope, site.block, call.lineno)
        if base is None or not base.is_core or base.kind not in {"class", "module", "instance"}:
            return []
        names = resolver.strings(second, site.scope, site.block, call.lineno) or ["*"]
        return [i for name in names for i in install(f"{base.via or base.name}.{name}")]
    return []
