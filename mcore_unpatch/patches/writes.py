"""Every spelling of "this attribute of that object becomes this value", as one record."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.code.module import Module
from mcore_unpatch.code.syntax import last_name, spelled, text_of
from mcore_unpatch.patches.records import Write, WriteKind

_DICTS = ("__dict__", "__globals__", "__dataclass_fields__")
_WRAPPERS = ("wrap_function_wrapper", "patch_function_wrapper", "wrap_object")


def writes(module: Module) -> Iterator[Write]:
    """Everything a file writes to an attribute or an item."""
    for store in module.stores:
        target, value = store.target, None if store.path else store.value
        if isinstance(target, ast.Attribute):
            yield Write(target, target.value, target.attr, value, WriteKind.ATTRIBUTE)
        elif spelled(target.value) == "sys.modules":
            yield Write(target, target.slice, None, value, WriteKind.SYS_MODULES)
        elif (owner := owner_of_dict(target.value)) is not None:
            yield Write(target, owner, target.slice, value, WriteKind.ITEM)
        elif isinstance(target.value, ast.Name):
            yield Write(target, target.value, target.slice, value, WriteKind.UNKNOWN_ITEM)
    for call in module.calls:
        yield from _of_call(call)


def owner_of_dict(node: ast.AST | None) -> ast.AST | None:
    """The object whose names `x.__dict__` or `vars(x)` holds."""
    if isinstance(node, ast.Attribute) and node.attr in _DICTS:
        return node.value
    if isinstance(node, ast.Call) and node.args:
        name = last_name(node.func)
        if name == "vars" or (name == "getattr" and len(node.args) > 1 and text_of(node.args[1]) == "__dict__"):
            return node.args[0]
    return None


def _of_call(call: ast.Call) -> Iterator[Write]:
    name, args = last_name(call.func), call.args
    reader = _READERS.get(name)
    if reader is not None and (args or call.keywords):
        yield from reader(call, args, call.func.value if isinstance(call.func, ast.Attribute) else None)


def _setattr(call: ast.Call, args: list[ast.expr], of: ast.expr | None) -> Iterator[Write]:
    if len(args) == 3:  # also `monkeypatch.setattr(owner, name, value)`
        yield Write(call, args[0], args[1], args[2], WriteKind.SETATTR)
    elif len(args) == 2 and of is not None and last_name(call.func) != "setattr":
        yield Write(call, owner_of_dict(of) or of, args[0], args[1], WriteKind.SETATTR)
    elif len(args) == 2 and of is not None:
        yield Write(call, args[0], None, args[1], WriteKind.MOCK)  # by a dotted text


def _item(call: ast.Call, args: list[ast.expr], of: ast.expr | None) -> Iterator[Write]:
    owner = owner_of_dict(of)
    is_update = last_name(call.func) == "update"
    pairs = _pairs(call) if is_update else [(args[0], args[1])] if len(args) == 2 else []
    if owner is not None:
        yield from (Write(call, owner, key, value, WriteKind.ITEM) for key, value in pairs)
    elif spelled(of) == "sys.modules":
        entries = ((key, value) for key, value in pairs if isinstance(key, ast.AST))
        yield from (Write(call, key, None, value, WriteKind.SYS_MODULES) for key, value in entries)


def _pairs(call: ast.Call) -> list[tuple[ast.AST | str, ast.AST]]:
    found: list[tuple[ast.AST | str, ast.AST]] = [(one.arg, one.value) for one in call.keywords if one.arg]
    for arg in call.args:
        if isinstance(arg, ast.Dict):
            found += [(key, value) for key, value in zip(arg.keys, arg.values, strict=True) if key is not None]
    return found


def _mock(call: ast.Call, args: list[ast.expr], of: ast.expr | None) -> Iterator[Write]:
    name = last_name(call.func)
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if name == "patch" and args:
        yield Write(call, args[0], None, args[1] if len(args) > 1 else given.get("new"), WriteKind.MOCK)
    elif name == "object" and last_name(of) == "patch" and len(args) > 1:
        value = args[2] if len(args) > 2 else given.get("new")
        yield Write(call, args[0], args[1], value, WriteKind.MOCK)
    elif name == "multiple" and last_name(of) == "patch" and args:
        yield from (Write(call, args[0], one.arg, one.value, WriteKind.MOCK) for one in call.keywords if one.arg)


def _wrapped(call: ast.Call, args: list[ast.expr], _: ast.expr | None) -> Iterator[Write]:
    if len(args) > 1:
        yield Write(call, args[0], args[1], args[2] if len(args) > 2 else None, WriteKind.SETATTR)


_READERS = {
    **dict.fromkeys(("setattr", "__setattr__"), _setattr),
    **dict.fromkeys(("update", "setdefault", "__setitem__"), _item),
    **dict.fromkeys(("patch", "object", "multiple"), _mock),
    **dict.fromkeys(_WRAPPERS, _wrapped),
}
