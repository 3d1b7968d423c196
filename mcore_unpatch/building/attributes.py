"""What the methods of a class put on `self`: from where, which class that builds, which class an annotation names."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any

from mcore_unpatch.building.written import annotated, flat, last_of
from mcore_unpatch.code.module import inner_scope, scope_of
from mcore_unpatch.code.syntax import NAMED_FUNCTIONS, parameters, parent_of, spelled

# Where what a method puts on `self` comes from, the telling ones first.
_ORIGINS = _SPEC, _ARGUMENT, _BUILT, _MADE = ("spec", "argument", "built", "made")
_COLLECTIONS = {"ModuleList", "ModuleDict", "Sequential"}
# What builds a submodule without naming its class: the attribute is known, its class is not.
_OPAQUE = {"build_module", "checkpoint_wrapper", *_COLLECTIONS}


def attributes_of(node: ast.ClassDef, callables: set[str]) -> Iterator[tuple[str, list[str]]]:
    """Each attribute with its traits; `callables` are the names of types of functions."""
    inits = [item for item in node.body if getattr(item, "name", "") in ("__init__", "__post_init__")]
    always = {one for init in inits if isinstance(init, NAMED_FUNCTIONS) for one in _always_set(init.body)}
    given: dict[Any, tuple[dict[str, list[str]], set[str]]] = {}  # to methods; and the variables that hold a class
    for attribute, stores in inner_scope(node).attributes.items():
        by_method: dict[Any, dict[str, str]] = {}
        for store in stores:
            method, outer = method_of(store.target, node), _assignment(store.target)
            if method is None or outer is None:
                continue
            if method not in given:
                given[method] = {arg.arg: annotated(arg.annotation) for arg in parameters(method)}, _chosen(method)
            words = by_method.setdefault(method, {})
            _note_type(outer, given[method][0], callables, words)
            alone = isinstance(outer, ast.AnnAssign) or (len(outer.targets) == 1 and outer.targets[0] is store.target)
            if alone and outer.value is not None:
                _note_value(outer.value, method.name, *given[method], words)
        held: dict[str, str] = {}
        for method, words in by_method.items():
            held |= {key: word for key, word in words.items() if key not in held}
            if method.name == "__init__" and "from" in words:
                held["from"] = words["from"]
        if by_method:
            yield (
                attribute,
                [f"{key}:{word}" if word else key for key, word in held.items()]
                + ["maybe"] * (attribute not in always),
            )


def _assignment(target: Any) -> Any:
    """The assignment that a target stands in."""
    while not isinstance(target, ast.stmt):
        target = parent_of(target)
    return target if isinstance(target, (ast.Assign, ast.AnnAssign)) else None


def _note_type(outer: Any, given: dict[str, list[str]], callables: set[str], words: dict[str, str]) -> None:
    texts = annotated(outer.annotation) if isinstance(outer, ast.AnnAssign) else []
    if isinstance(outer.value, ast.Name):
        texts = texts or given.get(outer.value.id, [])
    if texts:
        words["type"] = f"@{'|'.join(texts)}"
        if callables.intersection(texts):
            words["callable"] = ""


def _note_value(value: ast.expr, method: str, given: Iterable[str], chosen: set[str], words: dict[str, str]) -> None:
    origin = _origin(value, given, chosen)
    if origin and _ORIGINS.index(origin) <= _ORIGINS.index(words.get("from", _MADE).partition(":")[0]):
        words["from"] = f"{origin}:{method}"
    if isinstance(value, ast.Call) and (called := spelled(value.func)):
        opaque = called.rpartition(".")[2] in _OPAQUE
        if not opaque and (other := words.get("builds")) and other != f"@{called}":
            words["several"] = f"{words.get('several', other)}|{called}"  # one of several classes
        words["builds"] = "" if opaque else f"@{called}"
        if slot := slot_of(value):
            words["slot"] = slot


def slot_of(call: ast.Call) -> str:
    """The field of a `...Submodules` that `build_module(submodules.field, ...)` or `submodules.field(...)` builds."""
    first = call.args[0] if last_of(call.func) == "build_module" and call.args else call.func
    path = spelled(first)
    return path.rpartition(".")[2] if "submodules" in path.rpartition(".")[0] else ""


def method_of(target: ast.AST, owner: ast.ClassDef) -> Any:
    """The method of a class that a node stands in."""
    scope = scope_of(target)
    while scope.parent is not None and scope.parent.node is not owner:
        scope = scope.parent
    return scope.node if scope.parent is not None else None


def _chosen(method: Any) -> set[str]:
    """The variables that hold the class which a spec names: `given.part or Default`."""
    every = ((name, one.value) for name, bindings in inner_scope(method).names.items() for one in bindings)
    return {name for name, value in every if isinstance(value, ast.BoolOp) and "submodules" in spelled(value.values[0])}


def _origin(value: ast.expr, given: Iterable[str], chosen: set[str]) -> str:
    """What an attribute is made from; a spec and an argument go before a class that is built by name."""
    match value:
        case ast.Constant(value=None):
            return ""
        case ast.Name(id=name) if name in given:
            return _ARGUMENT
        case ast.IfExp(body=body, orelse=orelse):
            kinds = {_origin(branch, given, chosen) for branch in (body, orelse)} - {""}
            return next((origin for origin in _ORIGINS if origin in kinds), "")
        case ast.Call(func=function):
            path = spelled(function)
            leaf, root = path.rpartition(".")[2], path.partition(".")[0]
            if leaf == "build_module" or "submodules" in path or "spec" in path.lower() or path in chosen:
                return _SPEC
            named = root != "self" and root not in given and leaf[:1].isupper() and leaf not in _COLLECTIONS
            return _BUILT if named else _MADE
    return _MADE


def _always_set(body: list[ast.stmt]) -> set[str]:
    """The attributes of `self` that some statements set in any case."""
    always: set[str] = set()
    for node in body:
        match node:
            case ast.Assign(targets=targets):
                stored = [inner for target in targets for inner in flat(target)]
                always |= {
                    one.attr for one in stored if isinstance(one, ast.Attribute) and spelled(one.value) == "self"
                }
            case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=name), value=ast.expr()):
                always.add(name)
            case ast.If():
                always |= _always_set(node.body) & _always_set(node.orelse)
            case ast.With() | ast.Try():
                always |= _always_set(node.body)
    return always
