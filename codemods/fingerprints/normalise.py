"""Functions and imports as hashes, which leave out what a reader may change freely.

Comments, formatting, docstrings and annotations do not count, nor what a fork calls its package; every other name,
every constant and default does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from mcore_unpatch.codemods.syntax import bound_by_import
from mcore_unpatch.library.digests import dump, is_text, without_package

_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")


class StatementHash(NamedTuple):
    """A simple statement, or the head of a compound one: its hash and its lines in the file."""

    hash: str
    first: int
    last: int


def fingerprint(node: ast.stmt, package: str) -> str:
    """The hash of a whole statement; for a definition, its decorators included."""
    return _hash(dump(node, package), 12)


def origins(tree: ast.Module, package: str, file: str) -> dict[str, str]:
    """Imported name -> hash of its origin, for the imports at the top of a module.

    `package` is the name of the top package, `file` the module's path below it. `package.a.b` and its relative form
    are the same origin, whatever the package is called.
    """
    found: dict[str, str] = {}
    waiting: list[ast.AST] = [*tree.body]
    for node in waiting:
        if isinstance(node, ast.If | ast.Try | ast.ExceptHandler):
            waiting += ast.iter_child_nodes(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                origin = without_package(alias.name, package)
                if isinstance(node, ast.ImportFrom):
                    origin = f"{_absolute(node, package, file)}:{alias.name}"
                found[bound_by_import(alias, node)] = _hash(origin, 6)
    return found


def _absolute(node: ast.ImportFrom, package: str, file: str) -> str:
    module = node.module or ""
    if not node.level:
        return without_package(module, package)
    folders = file.split("/")[: -node.level]
    return "." + ".".join([*folders, module] if module else folders)


def parts(node: ast.AST, package: str) -> Iterator[StatementHash]:
    """The statements of a definition in order, the definition's own head first."""
    if isinstance(node, ast.stmt):
        if is_text(node):
            return
        blocks = [name for name in _BLOCKS if getattr(node, name, None)]
        first = node.lineno
        last = _line_before(getattr(node, blocks[0])[0]) if blocks else (node.end_lineno or first)
        yield StatementHash(_hash(dump(node, package, without=_BLOCKS), 6), first, max(first, last))
    for name in _BLOCKS:
        for child in getattr(node, name, None) or ():
            yield from parts(child, package)


def _line_before(node: ast.AST) -> int:
    decorators = getattr(node, "decorator_list", [])
    line: int = min([getattr(node, "lineno", 1), *(decorator.lineno for decorator in decorators)])
    return line - 1


def _hash(text: str, size: int) -> str:
    return blake2b(text.encode(), digest_size=size).hexdigest()
