"""Imports and locals that edits leave unused: what only the removed code asked for goes, unless others import it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from mcore_unpatch.code.syntax import parent_of
from mcore_unpatch.codemods.changes import Asked, Reason
from mcore_unpatch.codemods.imports.editor import Import
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.syntax import bound_by_import, is_pure
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.edits import Repository
from mcore_unpatch.editing.source import Function, Source, lines_of, parsed
from mcore_unpatch.sources.parsing import Unreadable

_WORD = re.compile(r"\w+")
# Says that an import is there for others.
_KEPT = re.compile(r"#\s*noqa(?!:)|#\s*noqa:[^#]*\bF401\b", re.IGNORECASE)


def drop_leftovers(bench: Workbench, path: str, new: bytes, reason: Reason) -> bool:
    """Let the editor of a file drop the imports that are unused in its `new` content and were used before."""
    source = bench.repository.source(path)
    try:
        gone = _said(source.tree) - _said(parsed(path, new).tree)
    except Unreadable:  # an edit went wrong: that is found out, and told, before anything is written
        return False
    going = [
        (node, alias)
        for node, alias in _imports(source)
        if (name := bound_by_import(alias, node)) in gone
        and (node not in source.tree.body or not _is_asked_for(bench.repository, path, name))
    ]
    for node, alias in going:
        bench.imports(path).drop(node, alias.name, reason)
    return bool(going)


def unread(bench: Workbench, path: str, new: bytes, reason: Reason) -> list[Asked]:
    """Changes that drop what a function assigned for the removed code alone: nothing in the file reads it any more."""
    source = bench.repository.source(path)
    try:
        after = parsed(path, new).tree
    except Unreadable:
        return []
    loads, stores = (_names(after, context) for context in (ast.Load, ast.Store))
    going = (_names(source.tree, ast.Load) - loads) & stores
    assigned: list[ast.Assign] = source.every(ast.Assign)
    alone = [node for node in assigned if isinstance(parent_of(node), Function) and is_pure(node.value)]
    gone = [node for node in alone if len(node.targets) == 1 and getattr(node.targets[0], "id", "") in going]
    return [Asked(source, change, reason) for change in remove(source, gone)]


def _names(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """The names that code reads, or sets."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, context)}


def _is_asked_for(repository: Repository, path: str, name: str) -> bool:
    """Whether another file may have a name from this one: it says both, or asks for all names."""
    module, index = path.removesuffix(".py").rpartition("/")[2].encode(), repository.names.index
    others = {*repository.naming(name), *index.saying("import *")} - {path}
    return any(module in index.sources[other] for other in others)


def _imports(source: Source) -> Iterator[tuple[Import, ast.alias]]:
    """The imported names that may go."""
    imports: list[Any] = source.every(ast.Import, ast.ImportFrom)
    for node in imports:
        kept = any(_KEPT.search(source.line(line)) for line in lines_of(node)) or source.path.endswith("__init__.py")
        home = parent_of(node)  # in a branch an import may be all there is
        plain = isinstance(home, ast.Module | Function) or (isinstance(home, ast.If) and len(home.body) > 1)
        if plain and not kept and getattr(node, "module", "") != "__future__":
            yield from ((node, alias) for alias in node.names if alias.name != alias.asname)


def _said(tree: ast.AST) -> set[str]:
    """The names that code asks for, by itself or in a text; docstrings left out."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
            found |= {*_WORD.findall(node.value)}
        elif isinstance(node, ast.Global | ast.Nonlocal):
            found |= {*node.names}
    return found
