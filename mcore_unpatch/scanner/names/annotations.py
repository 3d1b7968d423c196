"""What an annotation says that something is, and which classes an expression names, one or several."""

from __future__ import annotations

import ast

from mcore_unpatch.megatron import api
from mcore_unpatch.scanner.names.resolver import Position, Ref
from mcore_unpatch.scanner.names.strings import origins
from mcore_unpatch.scanner.sources.scopes import last_name

CONTAINERS = {
    "Optional",
    "Union",
    "List",
    "list",
    "Sequence",
    "Iterable",
    "Iterator",
    "tuple",
    "Tuple",
    "Final",
    "Annotated",
}
ANNOTATED = "its annotation"


def annotation(node: ast.AST | None, at: Position) -> Ref | None:
    """An instance of the class an annotation names."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            node = ast.parse(node.value, mode="eval").body
        except (SyntaxError, ValueError):
            return None
    if isinstance(node, ast.BinOp):
        return annotation(node.left, at) or annotation(node.right, at)
    if isinstance(node, ast.Tuple):
        return next((ref for element in node.elts if (ref := annotation(element, at))), None)
    if isinstance(node, ast.Subscript):
        outer = last_name(node.value)
        if outer in {"type", "Type"}:
            return classes(node.slice, at)
        return annotation(node.slice, at) if outer in CONTAINERS else None
    ref = at.expr(node)
    if ref and ref.kind == "class" and (ref.is_core or ref.home):
        return ref.but(kind="instance", why=ANNOTATED)
    scope = at.home.model.scope
    alias = scope.bindings.get(node.id, []) if ref is None and isinstance(node, ast.Name) else []
    if alias and isinstance(call := alias[0].node, ast.Call):  # Model = TypeVar("Model", bound=GPTModel)
        bounds = [keyword.value for keyword in call.keywords if keyword.arg == "bound"]
        return annotation(bounds[0], at.home.at_binding(alias[0], scope)) if bounds else None
    if alias and isinstance(alias[0].node, ast.Subscript | ast.BinOp):  # Models = list[GPTModel]
        return annotation(alias[0].node, at.home.at_binding(alias[0], scope))
    return None


def classes(node: ast.AST | None, at: Position) -> Ref | None:
    """A class, or the first known one of several, written out, under a name, or by their own names."""
    several: list[ast.expr | None] = []
    match node:
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            several = list(elements)
        case ast.Dict(keys=keys):
            several = keys
        case ast.BinOp(left=left, right=right):
            several = [left, right]
        case ast.Call(func=ast.Name(id="tuple" | "list" | "set" | "frozenset"), args=[inner]):
            several = [inner]
        case ast.Call(func=ast.Attribute(attr="keys", value=inner), args=[]):
            several = [inner]
        case ast.Constant(value=str(name)) if (known := api.class_named(name)) and at.home.related:
            return Ref("class", known)
        case _:
            ref = at.expr(node)
            if ref is not None and ref.kind == "class" and ref.is_core:
                return ref
            return at.home.answer(("classes", node), _under, node, at) if isinstance(node, ast.Name) else None
    return next((ref for node in several if (ref := classes(node, at))), None)


def _under(node: ast.Name, at: Position) -> Ref | None:
    """The first class of a collection that goes by a name, in this file or in the one it comes from."""
    behind = (origin for group in origins(node.id, at) for origin in group)
    return next((ref for origin in behind if (ref := classes(*origin))), None)
