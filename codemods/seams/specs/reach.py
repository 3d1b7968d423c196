"""What leads to a statement: who calls and imports what, on which condition, and as what a file can import it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import pairwise

from mcore_unpatch.codemods.emptied import references
from mcore_unpatch.codemods.imports.places import Import
from mcore_unpatch.codemods.syntax import bound_by_import, identifiers, module_of
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.source import Function, Source
from mcore_unpatch.megatron import api
from mcore_unpatch.megatron.versions import within
from mcore_unpatch.repository.paths import is_test

_CHOOSING = ast.If | ast.For | ast.While | ast.Try | ast.With | ast.Match


def runs_late(source: Source, node: ast.AST) -> bool:
    """Whether a node runs when a function is called, and not when the file is imported: defaults do at once."""
    above = [node, *source.above(node)]
    return any(
        isinstance(outer, ast.Lambda) or (isinstance(outer, Function) and inner in outer.body)
        for inner, outer in pairwise(above)
    )


def on_condition(bench: Workbench, source: Source, statement: ast.stmt, seen: Sequence[ast.AST] = ()) -> str:
    """Where something decides whether a statement runs, in its function or in one that calls that; empty if nothing."""
    function = source.function_of(statement)
    if not _is_certain(source, statement, function):
        return f"{source.path}:{statement.lineno}"
    calls = calls_to(bench, source, function) if function in source.tree.body and function not in seen else ()
    return next(filter(None, (on_condition(bench, at, call, [*seen, function]) for at, call in calls)), "")  # type: ignore[list-item]


def _is_certain(source: Source, statement: ast.stmt, function: Function | None) -> bool:
    """Whether a statement runs whenever its function does: no branch has it, and none before it returns.

    A function that a mark of the module keeps from running twice has run.
    """
    around = [*source.above(statement)]
    within = around[: around.index(function)] if function else around
    if any(isinstance(one, _CHOOSING) and not is_main(one) for one in within):
        return False
    inside = [*ast.walk(function)] if function else []
    marks = {name for node in inside if isinstance(node, ast.Global) for name in node.names}
    leaving = [node for node in inside if isinstance(node, ast.Return) and node.lineno < statement.lineno]
    tests = [getattr(source.parents[node], "test", node) for node in leaving if source.function_of(node) is function]
    return all(isinstance(test, ast.Name) and test.id in marks for test in tests)


def is_main(node: ast.AST) -> bool:
    """Whether a branch is that of a file which is run."""
    return isinstance(node, ast.If) and ast.unparse(node.test).startswith("__name__ ==")


def calls_to(bench: Workbench, source: Source, function: Function) -> Iterator[tuple[Source, ast.stmt]]:
    """The statements that call a function of a module, and may keep or hand back what it gives; not those of tests."""
    for at, use in references(bench, source, function):
        call = at.parents[use]
        statement = at.parents[call] if isinstance(call, ast.Call) and call.func is use else use
        if isinstance(statement, ast.Expr | ast.Assign | ast.Return) and not is_test(at.path):
            yield at, statement


# --- files of the repository ------------------------------------------------------------------------------------


def imports_of(bench: Workbench, path: str) -> Iterator[tuple[Source, Import]]:
    """The statements of other files that import a file."""
    stem = path.removesuffix(".py").removesuffix("/__init__").rpartition("/")[2]
    for source in bench.sources_naming(stem):
        for node in _imports(source):
            if path in _imported_by(bench, source, node) and source.path != path:
                yield source, node


def _imports(source: Source) -> list[Import]:
    return [*source.every(ast.Import), *source.every(ast.ImportFrom)]


def _imported_by(bench: Workbench, source: Source, node: Import) -> list[str]:
    """The files that a statement imports."""
    names = [alias.name for alias in node.names]
    if isinstance(node, ast.Import):
        return [*filter(None, (bench.locate(source.path, name, 0) for name in names))]
    inside = [".".join(filter(None, (node.module, name))) for name in names]
    return [*filter(None, (bench.locate(source.path, name, node.level) for name in (node.module or "", *inside)))]


def module_for(bench: Workbench, path: str, importer: Source) -> str:
    """What a file imports another as: as it does, or others do, else from the root of its package; empty if unknown."""
    for node in importer.every(ast.ImportFrom):
        if bench.locate(importer.path, node.module or "", node.level) == path:
            return "." * node.level + (node.module or "")
    parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    top = len(parts) - 1
    while top and bench.exists("/".join([*parts[:top], "__init__.py"])):
        top -= 1
    others = (node for at in bench.sources_saying(parts[-1]) for node in at.every(ast.ImportFrom))
    written = [node.module for node in others if not node.level]
    # A folder without __init__.py may be a package, or where scripts lie.
    from_the_top = [".".join(parts[top:])] if top < len(parts) - 1 or len(parts) == 1 else []
    here = (module for module in (*written, *from_the_top) if module and module.endswith(parts[-1]))
    return next((module for module in here if bench.locate(importer.path, module, 0) == path), "")


def imports_back(bench: Workbench, path: str, target: str) -> bool:
    """Whether a file imports another, itself, through others or with a package that it is in."""
    around = {*_packages(bench, target)}  # these are there, or on their way, when that file is read
    seen = {path, *_packages(bench, path)} - around
    waiting = [*seen]
    while waiting:
        source = bench.readable(waiting.pop())
        for node in _imports(source) if source else ():
            for found in _imported_by(bench, source, node):  # type: ignore[arg-type]
                if found == target:
                    return True
                new = {found, *(set(_packages(bench, found)) - around)} - seen
                seen |= new
                waiting += new
    return False


def _packages(bench: Workbench, path: str) -> list[str]:
    """The packages that a file is in, as they are read before it."""
    folders = path.split("/")[:-1]
    inits = ("/".join([*folders[: number + 1], "__init__.py"]) for number in range(len(folders)))
    return [init for init in inits if bench.exists(init) and init != path]


def bound_to(source: Source, full: str, node: ast.AST) -> str:
    """The name under which a place of a file sees something of Megatron's; empty where it is not imported for it."""
    suites = {id(source.home[id(one)]) for one in source.above(node) if isinstance(one, ast.stmt)} | {
        id(source.tree.body)
    }
    for one in source.every(ast.ImportFrom):
        for alias in one.names if id(source.home[id(one)]) in suites else ():
            symbol = api.lookup(f"{module_of(source, one)}.{alias.name}") if within(module_of(source, one)) else None
            if symbol is not None and symbol.name == full:
                return bound_by_import(alias, one)
    return ""


def is_free(source: Source, name: str) -> bool:
    """Whether a file has no such name yet."""
    return name.encode() not in source.data or name not in identifiers(source.tree)
