"""The keywords that a call passes in a dict: `f(**rest)`, with what the code around puts into it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.code.module import scope_of
from mcore_unpatch.code.syntax import FUNCTIONS, last_name, own_nodes, parent_of, text_of

_DEEPEST = 3  # dicts that are made of others


def put_into(call: ast.Call) -> list[str]:
    """The keys of what a call passes as `**rest`: written out where it is made, or put in whatever happens."""
    every = (word.value for word in call.keywords if word.arg is None)
    return list(dict.fromkeys(key for value in every for key in _keys(value, call, _DEEPEST)))


def _keys(node: ast.AST | None, call: ast.Call, depth: int) -> Iterator[str]:
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                yield from _keys(value, call, depth)
            elif (text := text_of(key)) is not None:
                yield text
    elif isinstance(node, ast.Call) and last_name(node.func) == "dict":
        for word in node.keywords:
            if word.arg is not None:
                yield word.arg
        for more in (*node.args, *(word.value for word in node.keywords if word.arg is None)):
            yield from _keys(more, call, depth)
    elif isinstance(node, ast.Name) and depth:
        yield from _keys_under(node, call, depth - 1)


def _keys_under(name: ast.Name, call: ast.Call, depth: int) -> Iterator[str]:
    """Of a dict that a name stands for: where it is made, and what the body of the function puts in."""
    scope = scope_of(name)
    home = scope.home_of(name.id)
    bindings = home.names[name.id] if home is not None else []
    function = scope.function()
    inside = own_nodes(function.node, ast.Call, ast.Subscript, ast.AugAssign) if function is not None else []
    if any(_takes_out(node, name.id) for node in inside):
        return
    if len(bindings) == 1 and bindings[0].value is not None and not bindings[0].path:
        yield from _keys(bindings[0].value, call, depth)
    for node in inside:
        if node.lineno > call.lineno:
            break
        statement = node if isinstance(node, ast.stmt) else parent_of(node)
        if not isinstance(parent_of(statement) if statement is not None else None, FUNCTIONS):
            continue  # it may not happen
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id == name.id and (key := text_of(node.slice)):
                yield key
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
            if isinstance(node.func.value, ast.Name) and node.func.value.id == name.id:
                made = ast.Call(ast.Name("dict", ast.Load()), node.args, node.keywords)
                yield from _keys(made, call, depth)


def _takes_out(node: ast.AST, name: str) -> bool:
    """`rest.pop(...)`, `del rest[...]`."""
    of = None
    if isinstance(node, ast.Call) and last_name(node.func) in ("pop", "clear", "popitem"):
        of = getattr(node.func, "value", None)
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Del):
        of = node.value
    return isinstance(of, ast.Name) and of.id == name
