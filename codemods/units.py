"""A module as its top-level statements: the names each one binds, the names it uses, and what is reached from where."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mcore_unpatch.codemods.syntax import bound_by_import
from mcore_unpatch.scanner.sources.nodes import walk

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign)


@dataclass(frozen=True, eq=False)
class Unit:
    """One top-level statement."""

    node: ast.stmt
    binds: frozenset[str]
    uses: frozenset[str]

    @property
    def key(self) -> str:
        """What fingerprints call it: the names it binds."""
        return ", ".join(sorted(self.binds))

    @property
    def is_import(self) -> bool:
        """Whether it is a plain import statement."""
        return isinstance(self.node, ast.Import | ast.ImportFrom)


def units(tree: ast.Module) -> list[Unit]:
    """The top-level statements of a module, in order."""
    return [Unit(node, frozenset(_bound(node)), frozenset(_used(node))) for node in tree.body]


def reached(start: Iterable[Unit], among: Iterable[Unit]) -> list[Unit]:
    """The units that `start` leads to by the names they use, itself included, in the order of the file."""
    everything = list(among)
    binding: defaultdict[str, list[Unit]] = defaultdict(list)
    for unit in everything:
        for name in unit.binds:
            binding[name].append(unit)
    found = set(start)
    waiting = list(found)
    while waiting:
        for name in waiting.pop().uses:
            new = set(binding.pop(name, ())) - found
            found |= new
            waiting += new
    return [unit for unit in everything if unit in found]


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (bound_by_import(alias, node) for alias in node.names)
    elif isinstance(node, _DEFINITIONS):
        yield node.name
    elif isinstance(node, _ASSIGNMENTS):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (name.id for name in walk(target) if isinstance(name, ast.Name))
    elif isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While | ast.ExceptHandler):
        for child in ast.iter_child_nodes(node):
            yield from _bound(child)


def _used(node: ast.AST) -> Iterator[str]:
    for child in walk(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
            yield child.id
        elif isinstance(child, ast.Global):
            yield from child.names
        elif isinstance(child, ast.Constant) and isinstance(child.value, str) and child.value.isidentifier():
            yield child.value  # "GPTModel" as an annotation, or a name in `__all__`
        elif isinstance(child, ast.AugAssign) and isinstance(child.target, ast.Name):
            yield child.target.id
