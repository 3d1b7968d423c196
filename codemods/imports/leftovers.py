"""Imports that edits leave unused: what only the removed code asked for goes with it, unless others import it here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from keyword import iskeyword

from mcore_unpatch.codemods.changes import Reason
from mcore_unpatch.codemods.imports.places import Import
from mcore_unpatch.codemods.syntax import bound_by_import
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.source import Function, Source, lines_of
from mcore_unpatch.scanner.sources.nodes import children, walk
from mcore_unpatch.scanner.sources.parsing import Unreadable

_WORD = re.compile(rb"[\w\x80-\xff]+")
# Says that an import is there for others.
_KEPT = re.compile(r"#\s*noqa(?!:)|#\s*noqa:[^#]*\bF401\b", re.IGNORECASE)
_Key = tuple[str, str, str, str | None]  # the function, the module, the name and its alias: the same before and after


def drop_leftovers(bench: Workbench, path: str, new: bytes, reason: Reason) -> bool:
    """Let the editor of a file drop the imports that are unused in its `new` content and were used before."""
    try:
        before, after = bench.source(path), Source(path, new)
    except Unreadable:  # an edit went wrong: that is found out, and told, before anything is written
        return False
    unused = {key for key, _, _, _, used in _imported(after) if not used} if not path.endswith("__init__.py") else set()
    going = [
        (node, alias.name, bound, bool(key[0]))
        for key, node, alias, bound, used in (_imported(before) if unused else ())
        if used and key in unused and alias.name != alias.asname
        if not any(_KEPT.search(before.line(line)) for line in lines_of(node))
    ]
    asked_for = _asked_for(bench, path, {bound for _, _, bound, is_local in going if not is_local})
    going = [leftover for leftover in going if leftover[3] or leftover[2] not in asked_for]
    for node, name, _, _ in going:
        bench.imports(path).drop(node, {name}, reason)
    return bool(going)


def _imported(source: Source) -> Iterator[tuple[_Key, Import, ast.alias, str, bool]]:
    """The imported names that can go: what they are bound to, and whether their scope asks for it."""
    imports = list(_imports(source.tree))
    bound: dict[ast.AST, set[str]] = {}
    for scope, node in imports:
        bound.setdefault(scope, set()).update(bound_by_import(alias, node) for alias in node.names)
    used = {scope: set(_used(scope, bound)) for scope in bound}
    for scope, node in imports:
        module = f"{'.' * node.level}{node.module}" if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            name = bound_by_import(alias, node)
            key = getattr(scope, "name", ""), module, alias.name, alias.asname
            yield key, node, alias, name, name in used[scope]


def _imports(scope: ast.AST, body: list[ast.stmt] | None = None) -> Iterator[tuple[ast.AST, Import]]:
    """Imports that can go, and whose they are: of the module or of a function, not one of several in a branch."""
    for node in getattr(scope, "body", []) if body is None else body:
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module != "__future__"):
            yield scope, node
        elif isinstance(node, Function):
            yield from _imports(node)
        elif isinstance(node, ast.ClassDef):
            yield from _imports(scope, [inner for inner in node.body if not isinstance(inner, Import)])
        elif isinstance(node, ast.If) and len(node.body) > 1:
            yield from _imports(scope, node.body)


def _used(scope: ast.AST, bound: dict[ast.AST, set[str]]) -> Iterator[str]:
    """The names that a scope asks for, by itself or in quotes; a function inside with an import of its own does not."""
    waiting: list[tuple[ast.AST, frozenset[str]]] = [(node, frozenset()) for node in children(scope)]
    while waiting:
        node, hidden = waiting.pop()
        if isinstance(node, Function):
            hidden = hidden.union(bound.get(node, ()))
        if isinstance(node, ast.Name):
            yield from {node.id} - hidden
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _quoted(node.value) - hidden
        elif isinstance(node, ast.Global | ast.Nonlocal):
            yield from node.names
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):  # a docstring
            waiting += [(child, hidden) for child in children(node)]


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


def _asked_for(bench: Workbench, path: str, names: set[str]) -> set[str]:
    """The names that another file may have from this one: told by their bytes, then by what files say that may."""
    found: set[str] = set()
    module = path.removesuffix(".py").rpartition("/")[2]
    for other in bench.paths if names else ():
        said = names - found
        try:
            data = bench.data(other) if other != path and other.endswith(".py") else b""
            if module.encode() not in data:
                continue
            if b"import *" not in data:
                said = {name for name in said if name.encode() in data}
                words = set(_WORD.findall(data)) if said else set()
                said = {name for name in said if name.encode() in words}
            found |= _imported_from(bench, other, path, module, said) if said else set()
        except FileNotFoundError:
            continue
        except (Unreadable, OSError):
            found |= said
    return found


def _imported_from(bench: Workbench, other: str, path: str, module: str, names: set[str]) -> set[str]:
    tree = bench.source(other).tree
    imports_it = False
    modules: set[str] = set()
    named: set[str] = set()
    for node in walk(tree):
        if isinstance(node, ast.ImportFrom):
            here = {alias.name for alias in node.names}
            if here & {*names, "*"} and bench.locate(other, node.module or "", node.level) == path:
                modules |= names if "*" in here else names & here
            imports_it |= module in here
        elif isinstance(node, ast.Import):
            imports_it |= any(alias.name.rpartition(".")[2] == module for alias in node.names)
        elif isinstance(node, ast.Attribute):
            named.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named.add(node.value)
            if f"{module}." in node.value:  # a mock of one
                modules |= {name for name in names if f"{module}.{name}" in node.value}
    return modules | (names & named if imports_it else set())
