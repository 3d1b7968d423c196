"""Imports that edits leave unused: what only the removed code asked for goes with it, unless others import it here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from keyword import iskeyword

from mcore_unpatch.codemods.changes import Reason
from mcore_unpatch.codemods.imports.places import Import
from mcore_unpatch.codemods.source import Source
from mcore_unpatch.codemods.units import bound_by_import
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.scanner.source import Unreadable

_Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
_WORD = re.compile(rb"[\w\x80-\xff]+")
_KEPT = re.compile(r"#\s*noqa(?!:)|#\s*noqa:[^#]*\bF401\b", re.IGNORECASE)


def drop_leftovers(bench: Workbench, path: str, new: bytes, reason: Reason) -> bool:
    """Let the editor of a file drop the imports that are unused in its `new` content and were used before."""
    try:
        before, after = bench.source(path), Source(path, new)
    except Unreadable:  # an edit went wrong: that is found out, and told, before anything is written
        return False
    if path.endswith("__init__.py"):
        return False
    unused = {key for _, _, key in _unused(after)}
    unused -= {key for _, _, key in _unused(before)} if unused else set()
    going = [
        (scope, node, alias)
        for scope, node in _imports(before.tree)
        for alias in node.names
        if _key(scope, node, alias) in unused and alias.name != alias.asname and not _is_kept(before, node)
    ]
    names = {bound_by_import(alias, node) for scope, node, alias in going if isinstance(scope, ast.Module)}
    asked_for = _asked_for(bench, path, names)
    dropped = False
    for scope, node, alias in going:
        if not (isinstance(scope, ast.Module) and bound_by_import(alias, node) in asked_for):
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
    if text.isascii() and text.isidentifier():
        return set() if iskeyword(text) else {text}
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


def _asked_for(bench: Workbench, path: str, names: set[str]) -> set[str]:
    """The names that another file may have from this one: told by their bytes, then by what files say that may."""
    found: set[str] = set()
    stem = path.removesuffix(".py").rpartition("/")[2].encode()
    for other in bench.paths if names else ():
        try:
            data = bench.data(other) if other != path and other.endswith(".py") else b""
        except FileNotFoundError:
            continue
        except (Unreadable, OSError):
            return names
        if stem in data:
            said = set(_WORD.findall(data))
            said_here = {name for name in names - found if b"import *" in data or name.encode() in said}
            found |= _imported_from(bench, other, path, said_here) if said_here else set()
    return found


def _imported_from(bench: Workbench, other: str, path: str, names: set[str]) -> set[str]:
    try:
        tree = bench.source(other).tree
    except (Unreadable, OSError):
        return names
    module = path.removesuffix(".py").rpartition("/")[2]
    imports_it = False
    found: set[str] = set()
    named: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            here = {alias.name for alias in node.names}
            if here & {*names, "*"} and bench.locate(other, node.module or "", node.level) == path:
                found |= names if "*" in here else names & here
            imports_it |= module in here
        elif isinstance(node, ast.Import):
            imports_it |= any(alias.name.rpartition(".")[2] == module for alias in node.names)
        elif isinstance(node, ast.Attribute):
            named.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named.add(node.value)
            if f"{module}." in node.value:  # a mock of one
                found |= {name for name in names if f"{module}.{name}" in node.value}
    return found | (names & named if imports_it else set())
