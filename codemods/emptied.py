"""Functions that lose everything they do: they go with their calls and imports in all files, or they stay."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from mcore_unpatch.codemods.imports.places import Import
from mcore_unpatch.codemods.syntax import bound_by_import, is_pure, is_value
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.source import Function, Source
from mcore_unpatch.library.syntax import dotted
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.parsing import Unreadable

_PROJECT_FILES = ("pyproject.toml", "setup.cfg")  # what starts a function, beside Python code
_LOGGING = ("logger.", "logging.", "warnings.warn")


@dataclass
class Emptied:
    """What goes with some statements of a file: more statements, and imported names."""

    statements: dict[Source, set[ast.stmt]] = field(default_factory=lambda: defaultdict(set))
    imports: list[tuple[Source, Import, str]] = field(default_factory=list)
    why_not: str = ""  # then a function would be left empty
    function: Function | None = None  # the one of the file itself that it began with

    def outermost(self, source: Source) -> list[ast.stmt]:
        """The statements of a file that go, without those inside others."""
        return [node for node in self.statements[source] if not self.holds(source, node)]

    def holds(self, source: Source, node: ast.AST) -> bool:
        """Whether a node is a part of what goes."""
        return any(around in self.statements[source] for around in source.above(node))


def with_emptied(bench: Workbench, gone: Mapping[Source, Iterable[ast.stmt]]) -> Emptied:
    """The statements that go, and the functions that these leave empty with all that only calls them."""
    found = Emptied()
    for source, nodes in gone.items():
        found.statements[source] |= set(nodes)
    waiting = [(at, node, at.function_of(node)) for at, nodes in found.statements.items() for node in nodes]
    while waiting:
        where, node, first = waiting.pop()
        function = where.function_of(node)
        if function is None or function in found.statements[where] or not _is_empty(where, function, found):
            continue
        found.function = first
        if isinstance(where.parents[function], ast.ClassDef) or function.decorator_list:
            found.why_not = f"`{function.name}` would be empty then, and is a method or has a decorator"
            return found
        found.statements[where].add(function)
        waiting.append((where, function, first))
        if path := next(filter(partial(_starts, bench, function.name), _PROJECT_FILES), ""):
            found.why_not = f"`{function.name}` would be empty then, and {path} names it"
        for other, use in references(bench, where, function):
            if isinstance(use, ast.ImportFrom) and (len(use.names) > 1 or use in other.tree.body):
                found.imports.append((other, use, function.name))
            elif isinstance(use, ast.ImportFrom):
                found.statements[other].add(use)
            elif isinstance(use, ast.Expr) and _is_call(other, use):
                found.statements[other].add(use)
                waiting.append((other, use, first))
            elif other is not where or not found.holds(where, use):
                does = "tests" if is_test(other.path) else "names"
                found.why_not = f"`{function.name}` would be empty then, and {other.path}, line {use.lineno} {does} it"
            if other.path not in bench.editable:
                found.why_not = f"`{function.name}` would be left empty, and {other.path} is not part of this migration"
        if found.why_not:
            return found
    for where in found.statements:
        found.statements[where] |= set(_asked_for(where, found))
    return found


def _starts(bench: Workbench, name: str, path: str) -> bool:
    """Whether a file of the project names a function as something that is called: `package.module:name`."""
    try:
        return bench.exists(path) and re.search(rb"[\w.]+:%b\b" % name.encode(), bench.data(path)) is not None
    except (Unreadable, OSError):
        return True


def _asked_for(source: Source, emptied: Emptied) -> Iterator[ast.stmt]:
    """Imports beside the statements that go, inside branches and functions, whose names only these ask for."""
    gone = emptied.statements[source]
    used: dict[bool, set[str]] = {True: set(), False: set()}
    for name in source.every(ast.Name):
        used[emptied.holds(source, name)].add(name.id)
    for suite in {
        id(suite): suite for node in gone if (suite := source.home[id(node)]) is not source.tree.body
    }.values():
        for node in suite:
            tried = node.body if isinstance(node, ast.Try) and not node.orelse and not node.finalbody else [node]
            imports = [statement for statement in tried if isinstance(statement, ast.Import | ast.ImportFrom)]
            names = {bound_by_import(alias, statement) for statement in imports for alias in statement.names}
            # Not those that others import from here.
            if len(imports) == len(tried) and node not in gone and names <= used[True] - used[False]:
                yield node


def references(
    bench: Workbench, source: Source, function: Function | ast.alias
) -> Iterator[tuple[Source, ast.stmt | ast.expr]]:
    """Where a function of a module is imported, called and named: imports, statements that call it, other nodes."""
    name, places, told = function.name, {source.path}, 0
    saying = list(bench.sources_naming(name))
    while told < len(places):  # a file that imports it may be imported for it
        told = len(places)
        places |= {source.path for source in saying if any(_imports_of(bench, source, name, places))}
    for other in saying:
        own = {id(node) for node in walk(function)} if other is source else set()
        imports = list(_imports_of(bench, other, name, places))
        yield from ((other, node) for node, _ in imports)
        bound = {bound for _, bound in imports} | ({name} if other is source else set())
        modules = _modules(bench, other, places)
        for node in other.every(ast.expr):
            means = False
            if isinstance(node, ast.Name):
                means = node.id in bound and not isinstance(node.ctx, ast.Store)
            elif isinstance(node, ast.Attribute):
                means = node.attr == name and dotted(node.value) in modules
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                means = re.fullmatch(rf"(\S+ *= *)?([\w.]+[.:])?{name}", node.value) is not None
            if means and id(node) not in own:
                call = other.parents[node]
                above = other.parents.get(call) if isinstance(call, ast.Call) and call.func is node else None
                yield other, above if isinstance(above, ast.Expr) else node


def _imports_of(bench: Workbench, source: Source, name: str, places: set[str]) -> Iterator[tuple[ast.ImportFrom, str]]:
    for node in source.every(ast.ImportFrom):
        for alias in node.names:
            if alias.name == name and bench.locate(source.path, node.module or "", node.level) in places:
                yield node, alias.asname or name


def _modules(bench: Workbench, source: Source, places: set[str]) -> set[str]:
    """What the file calls the modules that have it."""
    named = [(alias, alias.name, 0) for node in source.every(ast.Import) for alias in node.names]
    for node in source.every(ast.ImportFrom):
        named += [(alias, f"{node.module or ''}.{alias.name}".lstrip("."), node.level) for alias in node.names]
    return {
        alias.asname or alias.name
        for alias, module, level in named
        if bench.locate(source.path, module, level) in places
    }


def _is_empty(source: Source, function: Function, emptied: Emptied) -> bool:
    """Whether nothing is left of a function but what prepares or guards what goes."""
    gone = emptied.statements[source]
    shared = {name for node in walk(function) if isinstance(node, ast.Global) for name in node.names}

    def nothing(node: ast.stmt) -> bool:
        match node:
            case _ if node in gone:
                return True
            case ast.Pass() | ast.Import() | ast.ImportFrom() | ast.Global() | ast.Nonlocal():
                return True
            case ast.Expr(value):
                is_log = isinstance(value, ast.Call) and dotted(value.func).startswith(_LOGGING)
                return isinstance(value, ast.Constant) or is_log
            case ast.Return(value):
                return value is None or is_value(value, None)
            case ast.Assign([ast.Attribute(attr=name)], ast.Constant()):
                return _is_only_asked_here(source, function, name)
            case ast.Assign([ast.Name(name)], value):
                return is_pure(value) and not (name in shared and _is_read_elsewhere(source, function, name))
            case ast.Try():
                handlers = [statement for handler in node.handlers for statement in handler.body]
                return all(map(nothing, [*node.body, *node.orelse, *node.finalbody, *handlers]))
            case ast.If():
                return all(map(nothing, [*node.body, *node.orelse])) and is_pure(node.test)
        return False

    return all(map(nothing, function.body))


def _is_read_elsewhere(source: Source, function: Function, name: str) -> bool:
    """Whether other code of the file reads a name."""
    own = {id(node) for node in walk(function)}
    return any(
        node.id == name and isinstance(node.ctx, ast.Load) and id(node) not in own for node in source.every(ast.Name)
    )


def _is_only_asked_here(source: Source, function: Function, name: str) -> bool:
    """Whether a mark on an object is one that only this function sets and reads."""
    own = {id(node) for node in walk(function)}
    said = [node for node in source.every(ast.Attribute) if node.attr == name]
    told = [node for node in source.every(ast.Constant) if node.value == name]
    return all(id(node) in own for node in (*said, *told)) and name.startswith("_")


def _is_call(source: Source, statement: ast.Expr) -> bool:
    """Whether a statement calls something and does nothing else: its arguments are names and values."""
    call = statement.value
    return (
        isinstance(call, ast.Call)
        and source.owns_lines(statement)
        and all(map(is_pure, [*call.args, *(keyword.value for keyword in call.keywords)]))
    )
