"""Patches made through a call: which kind of installer is it?"""

from __future__ import annotations

import ast
from dataclasses import replace

from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.names.strings import strings
from mcore_unpatch.scanner.shapes import helpers, mocks, registries, respelled, source_rewrites, tables
from mcore_unpatch.scanner.shapes.assignments import from_setattr, namespace, set_by_name, whole_modules
from mcore_unpatch.scanner.shapes.install import Install
from mcore_unpatch.scanner.sources.scopes import Site, path_text

_HOOKS = ("register_forward_hook", "register_forward_pre_hook")


def from_call(site: Site, resolver: Resolver, tests: bool) -> list[Install]:
    """The patches one call makes; `tests`: also the mocks that test something."""
    call = site.call
    text = path_text(call.func) or ""
    if mocks.is_mock(text, site, resolver):
        return mocks.from_mock(site, resolver, text) if tests or not mocks.is_of_a_test(text, site, resolver) else []
    if text.endswith(("setattr", "__setattr__")) and len(call.args) == 3:
        if helpers.is_parametric(site, resolver):
            return []
        found = from_setattr(site, resolver)
        computed = all(install.attribute == "*" for install in found)  # a table may tell which names
        return (tables.from_rows(site, resolver) if computed else []) or found
    written = [replace(site, node=call) for call in respelled.setattrs(site, resolver)]
    if installs := [install for site in written for install in from_setattr(site, resolver)]:
        for install in installs:
            install.node = call
        return installs
    return next((installs for shape in _SHAPES if (installs := shape(site, resolver))), [])


def _from_namespace_update(site: Site, resolver: Resolver) -> list[Install]:
    """`module.__dict__.update(name=fn)` and `sys.modules.update({...})`."""
    call = site.call
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in {"update", "setdefault", "__setitem__"}:
        return []
    entries: list[tuple[str, ast.expr]] = [(k.arg, k.value) for k in call.keywords if k.arg]
    if call.args and isinstance(call.args[0], ast.Dict):
        entries += [(str(getattr(k, "value", "")), v) for k, v in registries.pairs(call.args[0])]
    elif call.func.attr != "update" and len(call.args) == 2:
        entries += [(n, call.args[1]) for n in strings(call.args[0], resolver.at(site))]
    if path_text(call.func.value) == "sys.modules":
        return whole_modules(site, [key for key, _ in entries], entries[0][1]) if entries else []
    holder, base = namespace(call.func.value, site, resolver)
    if holder is None or base is None or not base.is_core:
        return []
    installs = [i for name, value in entries for i in set_by_name(site, resolver, holder, base, [name], value)]
    for install in installs:
        install.shape = "sys-modules" if base.kind == "module" else "instance-attr"
    return installs


def _from_head_hook(site: Site, resolver: Resolver) -> list[Install]:
    """`model.output_layer.register_forward_hook(f)`: what it changes, a processor of the hidden states never meets."""
    call = site.call
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _HOOKS or not call.args:
        return []
    layer = resolver.at(site).expr(call.func.value)
    if layer is None or not layer.is_core or not layer.via.endswith(".output_layer"):
        return []
    installs = set_by_name(site, resolver, call.func.value, layer, ["forward"], call.args[0])
    for install in installs:
        install.shape, install.value = "forward-hook", None  # it is called with other arguments than `forward`
    return installs


# What a call can be, the most telling first.
_SHAPES = (
    _from_head_hook,
    registries.from_register_call,
    registries.from_table_method,
    _from_namespace_update,
    source_rewrites.from_exec,
    helpers.from_helper_call,
    registries.from_patcher,
)
