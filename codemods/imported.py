"""What names of a file stand for, as its own import statements say."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.codemods.syntax import bound_by_import
from mcore_unpatch.editing.source import Source
from mcore_unpatch.library.syntax import dotted


def calls_of(source: Source, name: str) -> Iterator[ast.Call]:
    """Every call of a function, by its whole dotted name: `a.b.f` is also `f`, `b.f` or `g` after an import of it."""
    known = _imported(source)
    for call in source.every(ast.Call):
        head, _, rest = dotted(call.func).partition(".")
        if head in known and name == (f"{known[head]}.{rest}" if rest else known[head]):
            yield call


def _imported(source: Source) -> dict[str, str]:
    """The names that import statements bind, wherever they stand, and the dotted name of what each is."""
    found: dict[str, str] = {}
    for node in source.every(ast.Import):
        for alias in node.names:
            found[bound_by_import(alias, node)] = alias.name if alias.asname else alias.name.partition(".")[0]
    for one in source.every(ast.ImportFrom):
        for alias in one.names:
            found[bound_by_import(alias, one)] = ".".join(filter(None, (module_of(source, one), alias.name)))
    return found


def module_of(source: Source, node: ast.ImportFrom) -> str:
    """The whole name of the module that a statement imports from, seen from the root of the repository."""
    if not node.level:
        return node.module or ""
    package = source.path.removesuffix(".py").split("/")[: -node.level]
    return ".".join([*package, *filter(None, [node.module])])
