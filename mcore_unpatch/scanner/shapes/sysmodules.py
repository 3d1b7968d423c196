"""Loops over `sys.modules` that rebind one of Megatron's names wherever it was imported."""

from __future__ import annotations

import ast

from mcore_unpatch.megatron import api
from mcore_unpatch.megatron.versions import ROOT
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.names.strings import strings
from mcore_unpatch.scanner.shapes.install import Install, parted
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import Block, Site, path_text


def from_loops(resolver: Resolver) -> list[Install]:
    """Assignments to a loop variable that runs over `sys.modules`."""
    if b"modules" not in resolver.model.data:
        return []
    installs = []
    for site in (*resolver.model.sites, *resolver.model.calls):
        loop = _loop_over_modules(site.block, resolver)
        write = site.written if loop is not None else None
        if loop is None or write is None or not _is_loop_variable(write[0], loop, resolver, site):
            continue
        subject, name, value = write
        names = strings(name, resolver.at(site))
        if isinstance(value, ast.Constant) and api.attribute_names().isdisjoint(names):
            continue  # a mark on the module
        for target, sure, why in _targets(names, loop, site, resolver):
            installs.append(Install(site, site.node, target, "sys-modules", sure, why, value, *parted(target), subject))
    return installs


def _loop_over_modules(block: Block, resolver: Resolver) -> ast.For | None:
    for around in block.outwards():
        loop = around.owner if around.kind == "for" else None
        if isinstance(loop, ast.For) and "sys.modules" in resolver.once(ast.unparse, loop.iter):
            return loop
    return None


def _is_loop_variable(subject: ast.expr, loop: ast.For, resolver: Resolver, site: Site) -> bool:
    """The loop's own variable, `sys.modules[name]`, or a name set from it (`module = sys.modules[name]`)."""
    loop_names = {node.id for node in walk(loop.target) if isinstance(node, ast.Name)}
    if isinstance(subject, ast.Subscript) and resolver.at(site).text(subject.value) == "sys.modules":
        return path_text(subject.slice) in loop_names
    if not isinstance(subject, ast.Name):
        return False
    if subject.id in loop_names:
        return True
    for binding in site.scope.bindings.get(subject.id, []):
        if (
            binding.kind == "value"
            and loop.lineno <= binding.line <= (loop.end_lineno or 0)
            and binding.node is not None
        ):
            used = {node.id for node in walk(binding.node) if isinstance(node, ast.Name)}
            if used & (loop_names | {"sys"}):
                return True
    return False


def _targets(names: list[str], loop: ast.For, site: Site, resolver: Resolver) -> list[tuple[str, bool, str]]:
    """What the loop rebinds: the thing compared with, a name only Megatron defines, or a filter on "megatron"."""
    for side in resolver.once(_compared, loop):
        ref = resolver.at(site)._replace(line=side.lineno).expr(side)
        if ref is not None and ref.is_core and ref.kind in {"function", "class", "value"}:
            return [(ref.name, True, "the comparison in the loop")]
    targets = []
    for name in names:
        owner = api.defining_module(name, newest=resolver.once(_says_megatron, loop))
        if owner is not None:
            targets.append((f"{owner}.{name}", False, f"the name `{name}`, defined in Megatron Core"))
    if targets or not names:
        return targets
    if resolver.once(_says_megatron, loop):
        return [(f"{ROOT}.{name}", False, "the loop's filter on Megatron") for name in names]
    return []


def _compared(loop: ast.For) -> list[ast.expr]:
    """Both sides of the `is` and `==` in a loop."""
    equal = [
        node
        for node in walk(loop)
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.Is | ast.Eq) for op in node.ops)
    ]
    return [side for node in equal for side in (node.left, *node.comparators)]


def _says_megatron(loop: ast.For) -> bool:
    return any(isinstance(node, ast.Constant) and "megatron" in str(node.value) for node in walk(loop))
