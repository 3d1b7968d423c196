"""Imports that edits leave unused: what only the removed code asked for goes with it, unless others import it here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mcore_unpatch.codemods.changes import Reason
from mcore_unpatch.codemods.imports.blocks import Import
from mcore_unpatch.codemods.source import Source
from mcore_unpatch.codemods.units import bound_by_import
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.scanner.source import Unreadable

_Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
_KEPT = re.compile(r"#\s*noqa(?!:)|#\s*noqa:[^#]*\bF401\b", re.IGNORECASE)


def drop_leftovers(bench: Workbench, path: str, new: bytes, reason: Reason) -> bool:
    """Let the editor of a file drop the imports that are unused in its `new` content and were used before."""
    try:
        before, after = bench.source(path), Source(path, new)
    except Unreadable:  # an edit went wrong: that is found out, and told, before anything is written
        return False
    if path.endswith("__init__.py"):
        return False
    unused = {key for _, _, key in _unused(after)} - {key for _, _, key in _unused(before)}
    dropped = False
    for scope, node in _imports(before.tree):
        for alias in node.names:
            name = bound_by_import(alias, node)
            if _key(scope, node, alias) not in unused or alias.name == alias.asname or _is_kept(before, node):
                continue
            if not (isinstance(scope, ast.Module) and _is_asked_for(bench, path, name)):
                bench.imports(path).drop(node, {alias.name}, reason)
                dropped = True
    return dropped


def _unused(source: Source) -> Iterator[tuple[_Scope, ast.alias, str]]:
    """The imported names that nothing in their scope asks for."""
    imports = list(_imports(source.tree))
    bound = {(scope, bound_by_import(alias, node)) for scope, node in imports for alias in node.names}
    used: dict[_Scope, set[str]] = {}
    for scope, node in imports:
        if scope not in used:
            used[scope] = set(_used(scope, bound))
        for alias in node.names:
            if bound_by_import(alias, node) not in used[scope]:
                yield scope, alias, _key(scope, node, alias)


def _imports(tree: ast.Module) -> Iterator[tuple[_Scope, Import]]:
    """Imports that can go, and whose they are: of the module or of a function, not one of several in a branch."""
    waiting: list[tuple[_Scope, ast.stmt]] = [(tree, node) for node in tree.body]
    while waiting:
        scope, node = waiting.pop()
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module != "__future__"):
            yield scope, node
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += [(node, inner) for inner in node.body]
        elif isinstance(node, ast.ClassDef):
            waiting += [(scope, inner) for inner in node.body if not isinstance(inner, Import)]
        elif isinstance(node, ast.If) and len(node.body) > 1:
            waiting += [(scope, inner) for inner in node.body]


def _used(scope: _Scope, bound: set[tuple[_Scope, str]]) -> Iterator[str]:
    """The names that a scope asks for, by itself or in quotes; a function inside with an import of its own does not."""
    waiting: list[tuple[ast.AST, frozenset[str]]] = [(node, frozenset()) for node in ast.iter_child_nodes(scope)]
    while waiting:
        node, hidden = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            hidden |= {name for owner, name in bound if owner is node}
        if isinstance(node, ast.Name):
            yield from {node.id} - hidden
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _quoted(node.value) - hidden
        elif isinstance(node, ast.Global | ast.Nonlocal):
            yield from node.names
        if not _is_docstring(node):
            waiting += [(child, hidden) for child in ast.iter_child_nodes(node)]


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _quoted(text: str) -> set[str]:
    """The names in a string that may be an annotation, or name something in `__all__`."""
    if len(text) > 200 or not re.match(r"[A-Za-z_][\w.\[\], |]*$", text):
        return set()
    try:
        return {node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)}
    except SyntaxError:
        return set()


def _key(scope: _Scope, node: Import, alias: ast.alias) -> str:
    """What a name is known by before and after."""
    where = "" if isinstance(scope, ast.Module) else scope.name
    module = f"{'.' * node.level}{node.module}" if isinstance(node, ast.ImportFrom) else ""
    return f"{where}:{module}:{alias.name}:{alias.asname}"


def _is_kept(source: Source, node: Import) -> bool:
    """Whether the file says that an import is there for others."""
    lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
    return any(_KEPT.search(source.line(line)) for line in lines)


def _is_asked_for(bench: Workbench, path: str, name: str) -> bool:
    """Whether another file may have the name from this one."""
    word = re.compile(rf"\b{re.escape(name)}\b".encode())
    stem = path.removesuffix(".py").rpartition("/")[2].encode()
    for other in bench.paths:
        data = bench.data(other) if other != path and other.endswith(".py") else b""
        if stem not in data:
            continue
        starred = b"import *" in data
        if (starred or word.search(data)) and _imports_from(bench, other, path, name):
            return True
    return False


def _imports_from(bench: Workbench, other: str, path: str, name: str) -> bool:
    try:
        tree = bench.source(other).tree
    except (Unreadable, OSError):
        return True
    module = path.removesuffix(".py").rpartition("/")[2]
    imports_it = False
    named = False
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            if names & {name, "*"} and bench.locate(other, node.module or "", node.level) == path:
                return True
            imports_it |= module in names
        elif isinstance(node, ast.Import):
            imports_it |= any(alias.name.rpartition(".")[2] == module for alias in node.names)
        elif isinstance(node, ast.Attribute):
            named |= node.attr == name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named |= node.value == name
            if f"{module}.{name}" in node.value:  # a mock of it
                return True
    return imports_it and named
