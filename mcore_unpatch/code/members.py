"""What a member of something is: `module.name`, `Class.name`, `object.name`."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from mcore_unpatch.code.module import ELEMENT, ENTERED, BindingKind, Step, Store
from mcore_unpatch.code.syntax import decorated_as, last_name, own_nodes
from mcore_unpatch.code.values import Frame, Kind, Resolving, Value, Values
from mcore_unpatch.library.interface import Member, MemberKind, SymbolKind

_PROPERTIES = ("property", "cached_property")


def member(names: Resolving, value: Value, name: str) -> Values:
    """An attribute of a value."""
    if value.kind == Kind.MODULE:
        return _of_module(names, value, name)
    if value.kind in (Kind.CLASS, Kind.INSTANCE):
        return _of_class(names, value, name)
    if value.kind == Kind.OTHER:
        dotted = f"{value.name}.{name}"
        found = names.module(dotted, "") if value.name.count(".") < 8 and names.library.within(dotted) else None
        return (found if found is not None and found.kind == Kind.MODULE else Value(Kind.OTHER, dotted),)
    return ()


def _of_module(names: Resolving, value: Value, name: str) -> Values:
    dotted = f"{value.name}.{name}"
    if value.node is not None:
        scope = value.node._inner
        key = (scope, name)
        if (name in scope.names or "*" in scope.names) and key not in names.active:
            names.active[key] = len(names.active)  # a package may import its modules from itself
            try:
                found = names.lookup(name, value.node, scope)
            finally:
                del names.active[key]
            if found and found[0].name != f"builtins.{name}":
                return found
        inner = names.module(dotted, scope.module.path)
        return (inner,) if inner.kind == Kind.MODULE else (Value(Kind.OTHER, dotted),)
    symbol = names.library.symbol(dotted)
    if symbol is None or symbol.kind in (SymbolKind.VALUE, SymbolKind.STATE):
        return (Value(Kind.OTHER, dotted),)
    return (Value(Kind(symbol.kind.value), symbol.name),)


def _of_class(names: Resolving, value: Value, name: str) -> Values:
    for each in names.lineage(value):
        found = _own_member(names, each, name, value)
        if found is not None:
            return found
    return ()


def _own_member(names: Resolving, cls: Value, name: str, value: Value) -> Values | None:
    """What a class itself has under a name; nothing where it has none, so that its bases are asked."""
    if cls.node is not None:
        return _of_own_class(names, cls, name, value)
    known = names.library.own_member(cls.name, name) if names.library.within(cls.name) else None
    if known is None:
        if names.library.is_class(cls.name) and names.library.inherits(cls.name, name):
            return (Value(Kind.FUNCTION, f"{cls.name}.{name}", None, value),)
        return None
    if known.kind == MemberKind.METHOD:
        return (Value(Kind.FUNCTION, f"{cls.name}.{name}", None, value),)
    if known.kind == MemberKind.CLASS:
        return (Value(Kind.CLASS, known.holds),)
    return _held(known)


def _held(known: Member) -> Values:
    if not known.holds:
        return ()
    item = Value(Kind.INSTANCE, known.holds)
    return (Value(Kind.ITEMS, "", None, None, ((item,),)),) if known.is_list else (item,)


def _of_own_class(names: Resolving, cls: Value, name: str, value: Value) -> Values | None:
    scope = cls.node._inner
    if name in scope.names:
        found: list[Value] = []
        for binding in scope.names[name]:
            if binding.kind != BindingKind.DEFINITION:
                found += names.bound_to(binding, scope, None)
            elif decorated_as(binding.node, *_PROPERTIES):
                annotated = names.annotated(binding.node.returns)
                returned = (one for answer in own_nodes(binding.node, ast.Return) for one in names.of(answer.value))
                found += annotated or tuple(returned)
            else:
                found.append(Value(Kind.FUNCTION, f"{cls.name}.{name}", binding.node, value))
        return tuple(found)
    if name in scope.attributes:
        return tuple(one for store in scope.attributes[name] for one in stored(names, store))
    return None


def stored(names: Resolving, store: Store) -> Values:
    """What a store puts there."""
    parent = store.target._parent  # type: ignore[union-attr]
    if isinstance(parent, ast.AnnAssign) and (found := names.annotated(parent.annotation)):
        return found
    return project(names, names.of(store.value), store.path)


def project(names: Resolving, values: Values, path: tuple[Step, ...], frame: Frame | None = None) -> Values:
    """A part of what values hold: of displays the part itself; a list of objects is known by the object."""
    for step in path:
        found: list[Value] = []
        for value in values:
            if value.kind == Kind.ITEMS:
                found += _part(names, value, step, frame)
            elif (value.kind == Kind.INSTANCE and (isinstance(step, int) or step in (ELEMENT, ENTERED))) or (
                value.kind == Kind.PARAMETER and step == ENTERED
            ):
                found.append(value)
        values = tuple(found)
    return values


def _part(names: Resolving, value: Value, step: Step, frame: Frame | None) -> Iterable[Value]:
    if value.node is None:
        parts = value.parts if not isinstance(step, int) or len(value.parts) == 1 else value.parts[step : step + 1]
        return [each for part in parts for each in part]
    if isinstance(value.node, ast.Subscript):  # an annotation
        inner = value.node.slice
        named = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        if isinstance(step, int) and len(named) > step and last_name(value.node.value) in ("tuple", "Tuple"):
            named = [named[step]]
        return [each for part in named for each in names.annotated(part)]
    return [each for part in items(value.node, step) for each in names.of(part, frame)]


def items(node: ast.AST, step: Step) -> list[Any]:
    """The parts of a display that a step of unpacking, a key or a loop takes."""
    if isinstance(node, ast.Dict):
        if step == ELEMENT:
            return list(node.values)
        pairs = zip(node.keys, node.values, strict=True)
        return [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == step]
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        return [node.elt]
    if isinstance(node, ast.DictComp):
        return [node.value]
    elements = list(getattr(node, "elts", ()))
    return elements[step : step + 1] if isinstance(step, int) and step >= 0 else elements
