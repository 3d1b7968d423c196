"""What is asked of a syntax tree again and again: how a name is spelled, what a function takes, what stands around.

A node knows its parent (`_parent`), and one that opens a scope knows that scope (`_inner`): `module` puts them there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
NAMED_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
FUNCTIONS = (*NAMED_FUNCTIONS, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
EXITS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_TRIES = (ast.Try, ast.TryStar)
_PLAIN_FIELDS = {"ctx", "op", "ops", "id", "attr", "arg", "name", "names", "kind", "level", "module", "type_comment"}
_PLAIN_FIELDS |= {"conversion", "simple", "is_async", "rest", "kwd_attrs", "type_params", "type_ignores"}
CHILDREN: dict[type, tuple[str, ...]] = {
    cls: () if cls in (ast.Constant, ast.MatchSingleton) else tuple(f for f in cls._fields if f not in _PLAIN_FIELDS)
    for cls in vars(ast).values()
    if isinstance(cls, type) and issubclass(cls, ast.AST)
}


def children(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes directly below a node, in the order of the text."""
    for field in CHILDREN[node.__class__]:
        child = getattr(node, field)
        if child.__class__ is list:
            yield from (item for item in child if item is not None)
        elif child is not None:
            yield child


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it, parents first; names and numbers inside a node are no nodes here."""
    todo = [node]
    while todo:
        node = todo.pop()
        yield node
        for field in CHILDREN[node.__class__]:
            child = getattr(node, field)
            if child.__class__ is list:
                todo += [item for item in child if item is not None]
            elif child is not None:
                todo.append(child)


def spelled(node: ast.AST | None) -> str:
    """`a.b.c` for a path of names; else nothing."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def last_name(node: ast.AST | None) -> str:
    """The last part of a path: `c` for `a.b.c` and for `f().c`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def text_of(node: ast.AST | None) -> str | None:
    """The text of a string that is written out."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def names_in(node: ast.AST) -> set[str]:
    """The names that an expression uses."""
    return {inner.id for inner in walk(node) if isinstance(inner, ast.Name)}


def parent_of(node: ast.AST) -> ast.AST | None:
    """The node that a node stands in; nothing for the module, and for what was made here."""
    return getattr(node, "_parent", None)


def ancestors(node: ast.AST) -> Iterator[tuple[Any, Any]]:
    """(parent, child) pairs, from a node up to the module."""
    while (parent := getattr(node, "_parent", None)) is not None:
        yield parent, node
        node = parent


def block_of(parent: ast.AST, child: ast.AST) -> list[ast.stmt]:
    """The list of statements that a statement stands in."""
    for field in ("body", "orelse", "finalbody"):
        block = getattr(parent, field, None)
        if isinstance(block, list) and any(each is child for each in block):
            return block
    return []


def own_nodes(function: ast.AST, *kinds: type) -> list[Any]:
    """The nodes of some kinds that belong to a function itself, not to one inside it; in the order of the text."""
    body = getattr(function, "body", [])
    found, todo = [], list(reversed(body)) if isinstance(body, list) else [body]
    while todo:
        node = todo.pop()
        if isinstance(node, kinds):
            found.append(node)
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            todo += reversed(list(children(node)))
    return found


def returned_counts(function: Any) -> set[int]:
    """How many values the returns of a function give, 0 among them where one does not tell; none of a generator."""
    if isinstance(function, ast.Lambda) or own_nodes(function, ast.Yield, ast.YieldFrom):
        return set()
    values = (answer.value for answer in own_nodes(function, ast.Return))
    return {_count(value) for value in values if value is not None}


def _count(value: ast.expr) -> int:
    if isinstance(value, ast.Tuple):
        return 0 if any(isinstance(part, ast.Starred) for part in value.elts) else len(value.elts)
    single = (ast.BinOp, ast.Constant, ast.Compare, ast.JoinedStr, ast.Dict, ast.List, ast.UnaryOp)
    return 1 if isinstance(value, single) else 0


def is_try(node: ast.AST | None) -> bool:
    """Whether a node is a `try`, also one with `except*`."""
    return isinstance(node, _TRIES)


def parameters(function: Any) -> list[ast.arg]:
    """All parameters, `*args` and `**kwargs` included."""
    args = function.args
    found = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    return found + [arg for arg in (args.vararg, args.kwarg) if arg is not None]


def function_of(arg: ast.arg) -> Any:
    """The function that a parameter belongs to."""
    return arg._function  # type: ignore[attr-defined]


def default_of(arg: ast.arg) -> ast.expr | None:
    """A parameter's default."""
    args = function_of(arg).args
    plain = args.posonlyargs + args.args
    for names, values in (
        (plain[len(plain) - len(args.defaults) :], args.defaults),
        (args.kwonlyargs, args.kw_defaults),
    ):
        for name, value in zip(names, values, strict=True):
            if name is arg:
                return value  # type: ignore[no-any-return]
    return None


def decorated_as(function: ast.AST, *names: str) -> bool:
    """Whether a decorator of one of these names stands above a function."""
    return any(last_name(decorator) in names for decorator in getattr(function, "decorator_list", ()))


def argument(arg: ast.arg, call: ast.Call, bound: bool) -> ast.expr | None:
    """What a call gives for a parameter, its default where it gives nothing; `bound`: the first one is the object."""
    function = function_of(arg)
    for keyword in call.keywords:
        if keyword.arg == arg.arg:
            return keyword.value
    positional = function.args.posonlyargs + function.args.args
    place = next((number for number, each in enumerate(positional) if each is arg), None)
    if place is not None:
        place -= bound
        given = call.args[: place + 1]
        if 0 <= place < len(call.args) and not any(isinstance(each, ast.Starred) for each in given):
            return call.args[place]
    return default_of(arg)
