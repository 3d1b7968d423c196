"""What codemods ask of syntax trees: names, parameters, and code without some of its parts."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence

from mcore_unpatch.editing.source import Function, Source
from mcore_unpatch.library.syntax import dotted, last_attribute
from mcore_unpatch.scanner.sources.nodes import walk

leaf = last_attribute


def is_name(node: ast.AST, name: str) -> bool:
    """Whether a node is this name."""
    return isinstance(node, ast.Name) and node.id == name


def is_value(node: ast.AST | None, value: object) -> bool:
    """Whether a node is the literal True, False or None."""
    return isinstance(node, ast.Constant) and node.value is value


def names_in(node: ast.AST) -> set[str]:
    """The names an expression or statement mentions."""
    return {child.id for child in walk(node) if isinstance(child, ast.Name)}


def is_stored(node: ast.AST, name: str) -> bool:
    """Whether a node gives a name its value."""
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)


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


# What asks, of a release or an object: nobody misses it where the answer is no longer needed.
_PURE = {
    *("parse", "Version", "version", "get_version", "signature", "hasattr", "getattr", "callable", "isinstance"),
    *("issubclass", "int", "str", "tuple", "map", "split", "startswith", "is_mcore_min_version", "find_spec", "len"),
    "import_module",
}


def is_pure(node: ast.expr, also: Container[str] = ()) -> bool:
    """Whether nobody misses a test, or a value, that is no longer computed; functions called `also` only ask."""
    for child in walk(node):
        if isinstance(child, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom | ast.Lambda):
            return False
        if isinstance(child, ast.Call) and not (leaf(child.func) in _PURE or _is_looked_up(child)):
            if leaf(child.func) not in also:
                return False
    return True


def _is_looked_up(call: ast.Call) -> bool:
    """`settings.get("name", ...)`."""
    key = call.args[0] if call.args and leaf(call.func) == "get" else None
    return isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value.isidentifier()


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
    scoped = (name for node in walk(tree) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names)
    return {*names_in(tree), *bound_in(walk(tree)), *scoped}


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
    for call in source.every(ast.Call):
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
            by_name[bound_by_import(alias, one)] = ".".join(filter(None, (module_of(source, one), alias.name)))
    return by_name


def module_of(source: Source, node: ast.ImportFrom) -> str:
    """The whole name of the module that a statement imports from, seen from the root of the repository."""
    if not node.level:
        return node.module or ""
    package = source.path.removesuffix(".py").split("/")[: -node.level]
    return ".".join([*package, *filter(None, [node.module])])
