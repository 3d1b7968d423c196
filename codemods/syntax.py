"""What codemods ask of syntax trees: names, parameters, and code without some of its parts."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from mcore_unpatch.code.syntax import last_name as leaf, names_in as names_in, spelled as dotted
from mcore_unpatch.editing.source import Function, Source

__all__ = ["dotted", "leaf", "names_in"]
# What asks, of a release or an object: nobody misses it where the answer is no longer needed.
_PURE = {
    *("parse", "Version", "version", "get_version", "signature", "hasattr", "getattr", "callable", "isinstance"),
    *("issubclass", "int", "str", "tuple", "is_mcore_min_version", "find_spec", "len"),
}


def is_name(node: ast.AST, name: str) -> bool:
    """Whether a node is this name."""
    return isinstance(node, ast.Name) and node.id == name


def is_value(node: ast.AST | None, value: object) -> bool:
    """Whether a node is this literal."""
    return isinstance(node, ast.Constant) and type(node.value) is type(value) and node.value == value


def is_pure(node: ast.expr) -> bool:
    """Whether nobody misses a test that is no longer made."""
    for child in ast.walk(node):
        if isinstance(child, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom | ast.Lambda):
            return False
        if isinstance(child, ast.Call) and leaf(child.func) not in _PURE:
            return False
    return True


def parameters(function: Function) -> list[str]:
    """Every parameter's name, by position; `*args` and `**kwargs` left out."""
    spec = function.args
    return [arg.arg for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]


def body_of(function: Function) -> list[ast.stmt]:
    """The statements after the docstring."""
    return function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body


def bound_by_import(alias: ast.alias, node: ast.Import | ast.ImportFrom) -> str:
    """The name that one part of an import statement binds."""
    if alias.asname:
        return alias.asname
    return alias.name if isinstance(node, ast.ImportFrom) else alias.name.partition(".")[0]


def walk_without(tree: ast.AST, left_out: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Every node but those below some."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if node not in left_out:
            yield node
            waiting += ast.iter_child_nodes(node)


def identifiers(tree: ast.AST) -> set[str]:
    """Every name that code reads or binds, by whatever statement."""
    scoped = (name for node in ast.walk(tree) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names)
    return {*names_in(tree), *bound_in(ast.walk(tree)), *scoped}


def bound_in(nodes: Iterable[ast.AST]) -> Counter[str]:
    """The names that some nodes bind, those below them left out, and how often."""
    names: Counter[str] = Counter()
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                names[name] += 1
            case ast.alias(name=name, asname=other):
                names[(other or name).partition(".")[0]] += 1
            case _:  # functions, classes, `except ... as`, patterns
                names[getattr(node, "name", None) or getattr(node, "rest", None) or ""] += 1
    del names[""]
    return names


def calls_of(source: Source, name: str) -> Iterator[ast.Call]:
    """Every call of a function, by its whole dotted name: `a.b.f` is also `f`, `b.f` or `g` after an import of it."""
    known = imported(source)
    for call in source.module.calls:
        head, _, rest = dotted(call.func).partition(".")
        if head in known and name == (f"{known[head]}.{rest}" if rest else known[head]):
            yield call


def imported(source: Source) -> dict[str, str]:
    """The names that import statements bind, wherever they stand, and the dotted name of what each is."""
    by_name: dict[str, str] = {}
    for node in source.every(ast.Import):
        for alias in node.names:
            by_name[bound_by_import(alias, node)] = alias.name if alias.asname else alias.name.partition(".")[0]
    for one in source.every(ast.ImportFrom):
        for alias in one.names:
            by_name[bound_by_import(alias, one)] = f"{source.module.absolute(one.module, one.level)}.{alias.name}"
    return by_name
