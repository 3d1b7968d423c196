"""Pieces of Python's syntax as the builder reads them: names, parameter lists, what is returned, a walk by kinds."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator
from functools import cache, cached_property
from itertools import chain
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
# Around the one class that matters in an annotation: `Optional[X]`, `list[X]`.
_CONTAINERS = {"Optional", "Union", "List", "list", "Sequence", "Iterable", "Tuple", "tuple"}


def dotted(node: ast.AST) -> str:
    """`a.b.c` as text; empty for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def source_of(node: ast.ImportFrom, package: str) -> str:
    """The module that a `from` import names."""
    above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    return ".".join([*above, *filter(None, [node.module])])


def last_attribute(node: ast.AST | None) -> str:
    """`c` of `a.b.c` and of `f().c`; empty where there is no name at the end."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def leaf_of(node: ast.expr) -> str:
    """The last name of what is called or read."""
    return dotted(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]


def statements(body: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """Every statement that runs when a module or class body runs, also below `if`, `try` and `with`."""
    for node in body:
        if isinstance(node, ast.stmt):
            yield node
        if isinstance(node, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            for field in ("body", "handlers", "orelse", "finalbody"):
                yield from statements(getattr(node, field, ()))


def parameters_of(function: Function | ast.Lambda) -> str:
    """The parameter list as one line: names, `=` and a plain default behind one, `/`, `*`, `*name` and `**name`."""
    spec = function.args
    positional = [*spec.posonlyargs, *spec.args]
    defaults = [*[None] * (len(positional) - len(spec.defaults)), *spec.defaults]
    words = [arg.arg + default_text(default) for arg, default in zip(positional, defaults, strict=True)]
    if spec.posonlyargs:
        words.insert(len(spec.posonlyargs), "/")
    if spec.vararg:
        words.append(f"*{spec.vararg.arg}")
    elif spec.kwonlyargs:
        words.append("*")
    words += [arg.arg + default_text(default) for arg, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
    if spec.kwarg:
        words.append(f"**{spec.kwarg.arg}")
    return " ".join(words)


def default_text(node: ast.expr | None) -> str:
    """A default as the parameter list writes it: with its value where that is a plain constant."""
    if node is None:
        return ""
    value = node.value if isinstance(node, ast.Constant) else ...
    if isinstance(value, str):
        return f"={value!r}" if value.isidentifier() else "="
    return f"={value}" if isinstance(value, bool | int | float | None) else "="


def given_counts(function: Function | ast.Lambda) -> frozenset[int]:
    """How many values the `return a, b` statements of a function give; 0 stands for one that is not evident."""
    if isinstance(function, ast.Lambda):
        return frozenset({_count(function.body)})
    return frozenset(0 if isinstance(count, str) else count for count in returned(Nodes([function])))


def returned(nodes: Nodes) -> frozenset[int | str]:
    """The same for the nodes of a function, with the name of one whose result is returned as it is."""
    nodes = nodes.own
    if ast.Yield in nodes or ast.YieldFrom in nodes:
        return frozenset({0})
    counts: set[int | str] = set()
    for node in nodes.of(ast.Return):
        match node.value:
            case ast.Name(id=name):
                counts |= _held(name, nodes)
            case ast.Call(func=ast.Name(id=name)):
                counts.add(name)
            case None:
                pass
            case value:
                counts.add(_count(value))
    return frozenset(counts)


def _held(name: str, nodes: Nodes) -> set[int]:
    """How many values a variable holds that is returned: where each assignment to it is a plain tuple."""
    given = [node.value for node in nodes.of(ast.Assign) for target in node.targets if name in names_in(target)]
    changed = (target for node in nodes.of(ast.AugAssign, ast.For) if name in names_in(target := node.target))
    return {_count(value) for value in given} if given and not any(changed) else {0}


def _count(value: ast.expr | None) -> int:
    if isinstance(value, ast.Tuple) and not any(isinstance(item, ast.Starred) for item in value.elts):
        return len(value.elts)
    return 0


# What a walk does not go into: contexts and operators say nothing, what annotations name is used for nothing, and the
# others hold no node.
_SKIPPED = """ctx op ops annotation returns type_comment type_params id attr arg name asname module level kind simple
is_async conversion rest kwd_attrs"""
_LEAVES = (ast.Constant, ast.Global, ast.Nonlocal, ast.MatchSingleton)


@cache
def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    skipped = _SKIPPED.split()
    return () if kind in _LEAVES else tuple(name for name in kind._fields if name not in skipped)


class Nodes(dict[type, list[Any]]):
    """The nodes of a piece of code by their type, outer ones first: the code is walked once."""

    def __init__(self, roots: Iterable[ast.AST], stop: Container[ast.AST] = ()) -> None:
        super().__init__()
        waiting = list(roots)
        self._roots = frozenset(waiting)
        for node in waiting:
            kind = node.__class__
            if kind in self:
                self[kind].append(node)
            else:
                self[kind] = [node]
            if stop and node in stop:
                waiting += getattr(node, "decorator_list", ())
                continue
            for name in _fields(kind):  # type: ignore[arg-type]
                value = getattr(node, name, None)
                if value.__class__ is list:
                    waiting += [item for item in value if item is not None]
                elif value is not None:
                    waiting.append(value)

    def of(self, *kinds: type) -> Iterator[Any]:
        """The nodes of some types."""
        return chain.from_iterable(self.get(kind, ()) for kind in kinds)

    @cached_property
    def own(self) -> Nodes:
        """Without those of functions and classes within the outermost one."""
        within = {node for node in self.of(*_SCOPES) if node not in self._roots}
        return Nodes(self._roots, within) if within else self


def annotated(node: ast.expr | None) -> list[str]:
    """The classes an annotation names, as they are written."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            node = ast.parse(node.value, mode="eval").body
        except (SyntaxError, ValueError):
            return []
    if isinstance(node, ast.BinOp):
        return [*annotated(node.left), *annotated(node.right)]
    if isinstance(node, ast.Tuple):
        return [name for element in node.elts for name in annotated(element)]
    if isinstance(node, ast.Subscript):
        outer = dotted(node.value).rpartition(".")[2]
        return annotated(node.slice) if outer in _CONTAINERS else [outer]
    return [name] if node is not None and (name := dotted(node)) else []


def bound_names(body: list[ast.stmt]) -> tuple[set[str], set[str]]:
    """The names that statements bind whatever happens, and all that they may bind."""
    always: set[str] = set()
    every: set[str] = set()
    for node in body:
        ways: list[list[ast.stmt]] = []
        match node:
            case ast.If(body=then, orelse=orelse):
                ways = [then, orelse]
            case ast.Try(body=then, handlers=handlers, orelse=orelse, finalbody=last):
                ways = [[*then, *orelse, *last], *([*handler.body, *last] for handler in handlers)]
            case ast.With(body=then):
                ways = [then]
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                always.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                always |= {alias.asname or alias.name.partition(".")[0] for alias in names}
            case ast.Assign(targets=targets):
                always |= {leaf for target in targets for leaf in names_in(target)}
            case ast.AnnAssign(target=target):
                always |= set(names_in(target))
        known = [bound_names(way) for way in ways if not (way and isinstance(way[-1], ast.Raise))]
        always |= set.intersection(*(sure for sure, _ in known)) if known else set()
        every |= set().union(*(may for _, may in known))
    return always, always | every


def flat(target: ast.expr) -> Iterator[ast.expr]:
    """The targets of an assignment, one by one."""
    if isinstance(target, ast.Tuple | ast.List):
        for item in target.elts:
            yield from flat(item)
    else:
        yield target


def names_in(target: ast.expr) -> list[str]:
    """The names among them."""
    return [item.id for item in flat(target) if isinstance(item, ast.Name)]


def sets_attribute(code: ast.AST, name: str, but: str = "") -> ast.Attribute | ast.Constant | None:
    """Where code sets an attribute of whatever object, `but` one: by assignment, or by its name as a text."""
    for node in ast.walk(code):
        if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store):
            if but and dotted(node.value) == but:
                continue
            return node
        if isinstance(node, ast.Constant) and node.value == name:
            return node
    return None
