"""The keywords that a call passes in a dict: `f(**rest)`, with what the code around puts into it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.judge.meaning import Meant, written
from mcore_unpatch.scanner.names.resolver import Position, Ref
from mcore_unpatch.scanner.sources.nodes import walk

_DEEPEST = 3  # dicts that are made of others


def passed_on(ref: Ref, keywords: tuple[str, ...]) -> Iterator[tuple[Meant, tuple[str, ...]]]:
    """What a function of the repository passes its `**rest` to, and the keywords of a call that are in it."""
    function = ref.node
    if not isinstance(function, ast.FunctionDef) or function.args.kwarg is None or ref.home is None:
        return
    own = {parameter.arg for parameter in (*function.args.args, *function.args.kwonlyargs)}
    rest, more = function.args.kwarg.arg, tuple(name for name in keywords if name not in own)
    nodes = list(walk(function)) if more else []
    if any(_takes_out(node, rest) for node in nodes):
        return
    for node in nodes:
        starred = getattr(node, "keywords", ()) if isinstance(node, ast.Call) else ()
        if any(word.arg is None and getattr(word.value, "id", "") == rest for word in starred):
            function_of = node.func  # type: ignore[attr-defined]
            if isinstance(function_of, ast.Name | ast.Attribute) and (meant := written(function_of, ref.home)):
                yield meant, more


def put_into(node: ast.Call, place: Position) -> list[str]:
    """The keys of what a call passes as `**rest`: written out where it is made, or put in whatever happens."""
    return [key for word in node.keywords if word.arg is None for key in _keys(word.value, place)]


def _keys(node: ast.expr | None, place: Position, depth: int = 0) -> list[str]:
    """The keys that a dict has for certain."""
    found: list[str] = []
    match node:
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                found += [str(key.value)] if isinstance(key, ast.Constant) else []
                found += _keys(value, place, depth) if key is None else []
        case ast.Call(func=ast.Name(id="dict"), args=args, keywords=words):
            found += [word.arg for word in words if word.arg]
            for more in (*args, *(word.value for word in words if word.arg is None)):
                found += _keys(more, place, depth)
        case ast.Name(id=name) if depth < _DEEPEST:
            found = _keys_under(name, place, depth + 1)
        case ast.Call(func=function) if depth < _DEEPEST:
            found = _keys_given(place.expr(function), depth + 1)
    return found


def _keys_under(name: str, place: Position, depth: int) -> list[str]:
    """Of a dict that a name stands for: where it is made, and what the body of the function puts in."""
    made = place.scope.bindings.get(name, [])
    value = made[0].node if len(made) == 1 and made[0].kind == "value" else None
    function = place.scope.function
    body = getattr(function.node, "body", None) if function is not None else None
    statements = body if isinstance(body, list) else []
    takes_out = any(_takes_out(inner, name) for statement in statements for inner in walk(statement))
    keys = _keys(value, place, depth) if isinstance(value, ast.expr) and not takes_out else []
    for statement in statements:
        if statement.lineno > place.line:
            break
        match statement:
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=of), slice=ast.Constant(value=str(key)))]):
                keys += [key] if of == name else []
            case ast.AugAssign(target=ast.Name(id=of), op=ast.BitOr(), value=more):
                keys += _keys(more, place, depth) if of == name else []
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=of), attr="update")) as call):
                as_dict = ast.Call(ast.Name("dict"), call.args, call.keywords)
                keys += _keys(as_dict, place, depth) if of == name else []
    return keys


def _keys_given(ref: Ref | None, depth: int) -> list[str]:
    """Of what a function of the repository returns, where it has one `return`."""
    if ref is None or ref.home is None or ref.kind != "local-function" or ref.node is None:
        return []
    returned = ref.home.returns_of(ref.node)
    return _keys(returned[0][0].value, returned[0][1], depth) if len(returned) == 1 else []


def _takes_out(node: ast.AST, name: str) -> bool:
    """`rest.pop(...)`, `del rest[...]`, `rest = {...}` anew."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=of), attr="pop" | "clear" | "popitem")):
            return of == name
        case ast.Subscript(value=ast.Name(id=of), ctx=ast.Del()):
            return of == name
    return False
