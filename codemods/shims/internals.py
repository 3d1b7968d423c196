"""Tests that know a patch from the inside: they go on with code that nothing else runs once the shim has its place."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from mcore_unpatch.codemods.edits import Remark
from mcore_unpatch.codemods.shims.definitions import Definition
from mcore_unpatch.codemods.shims.holds import closure, words
from mcore_unpatch.codemods.shims.uses import Use
from mcore_unpatch.codemods.syntax import dotted
from mcore_unpatch.findings import Finding
from mcore_unpatch.paths import is_test


def told(
    definition: Definition, rules: Sequence[str], looks: Iterable[Use], findings: Iterable[Finding]
) -> Iterator[Remark]:
    """One remark per test file on what it knows of the functions of these rules."""
    path = definition.source.path
    moved = {unit for rule in rules for unit in closure(definition, rule)}
    shared = frozenset().union(*(unit.uses for unit in definition.units if unit not in moved))
    patched = {finding.target.rpartition(".")[2] for finding in findings if finding.path == path}
    kept_on_models = {name for unit in moved for name in _kept(unit.node, patched)}
    for look in looks:
        if not is_test(look.source.path) or not any(need.where == path for need in look.needs):
            continue
        found: dict[str, int] = {}
        for need in look.needs:
            inside = need.replaces or need.name not in shared.union(definition.shim.names)
            if need.where == path and inside and need.name in words(moved):
                found.setdefault(need.name, need.line)
        for name, line in _mentions(look.source.tree):
            if name in kept_on_models:
                found.setdefault(name, line)
        if found:
            places = ", ".join(f"`{name}` (line {line})" for name, line in sorted(found.items(), key=lambda i: i[1]))
            text = f"tests {places} of {path}, which nothing else runs any more: adapt these tests to the shim"
            yield Remark(look.source.path, min(found.values()), rules[0], "by-hand", text)


def _kept(unit: ast.stmt, patched: set[str]) -> Iterator[str]:
    """What a function leaves on an object beside the patch itself: a backup, a mark."""
    stores = [n for n in ast.walk(unit) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)]
    models = {dotted(node.value) for node in stores if node.attr in patched}
    for node in stores:
        if dotted(node.value) in models and node.attr not in patched:
            yield node.attr


def _mentions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr, node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, node.lineno
