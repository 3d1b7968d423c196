"""Each kind of expression, and what it may be: `Names.of` calls these by the type of a node."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any

from mcore_unpatch.code.members import member, project
from mcore_unpatch.code.module import ELEMENT, Step, scope_of
from mcore_unpatch.code.syntax import function_of, last_name, own_nodes, spelled, text_of
from mcore_unpatch.code.values import Frame, Kind, Resolving, Value, Values, classes, instances, texts

MOST_TEXTS = 40
# Calls that give back what they are given, or a part of it.
_HAND_BACK = "list tuple iter reversed sorted set enumerate cast next copy deepcopy values unwrap_model"
_WRAP = "partial partialmethod staticmethod classmethod wraps MethodType no_grad contextmanager lru_cache cache"
_GIVES_BACK = frozenset(f"{_HAND_BACK} {_WRAP}".split())
_MOVES = ("to", "cuda", "cpu", "half", "bfloat16", "float", "eval", "train")
_IMPORTERS = {"import_module", "__import__", "safe_import", "safe_import_from", "locate", "resolve_name", "get_class"}
_SAME_OBJECT = ("__self__", "__func__", "__wrapped__", "__dict__")


def _attribute(names: Resolving, node: ast.Attribute, frame: Frame | None) -> Values:
    path = spelled(node)
    if path and (narrowed := names.narrowed(node, path)):
        return narrowed
    base = names.of(node.value, frame)
    if node.attr == "__class__":
        return classes(base)
    if node.attr in _SAME_OBJECT:
        return base
    if node.attr == "__name__":
        found = (value for value in base if value.kind in (Kind.FUNCTION, Kind.CLASS))
        return tuple(Value(Kind.TEXT, value.name.rpartition(".")[2], value.node) for value in found)
    if base and all(value.kind == Kind.PARAMETER for value in base):
        base = names.settled(base)
    return tuple(found for value in base for found in member(names, value, node.attr))


def _call(names: Resolving, node: ast.Call, frame: Frame | None) -> Values:
    name = last_name(node.func)
    special = _SPECIAL.get(name)
    if special is not None and (found := special(names, node, frame)) is not None:
        return found
    first = node.args[0] if node.args else None
    called = names.settled(names.of(node.func, frame))
    values = [made for value in called for made in _made(names, value, node, frame)]
    if first is not None and name in _GIVES_BACK:
        if not any(value.kind != Kind.OTHER for value in values):
            return names.of(first, frame)
    if not values and name in _MOVES and isinstance(node.func, ast.Attribute):
        return tuple(value for value in names.of(node.func.value, frame) if value.kind == Kind.INSTANCE)
    return tuple(values)


def _made(names: Resolving, called: Value, node: ast.Call, frame: Frame | None) -> Iterable[Value]:
    """What a call of a value gives."""
    if called.kind == Kind.CLASS:
        return (Value(Kind.INSTANCE, called.name, called.node),)
    if called.kind == Kind.FUNCTION and called.node is not None:
        return result(names, called.node, node, frame)
    if called.kind == Kind.FUNCTION:
        made = names.library.result(called.name)
        if len(made) > 1:
            parts = tuple((Value(Kind.INSTANCE, each),) if each else () for each in made)
            return (Value(Kind.ITEMS, "", None, None, parts),)
        return (Value(Kind.INSTANCE, made[0]),) if made and made[0] else ()
    return (called,) if called.kind == Kind.ITEMS else ()


def result(names: Resolving, function: Any, call: ast.Call, frame: Frame | None = None) -> Values:
    """What a call of one of the repository's functions gives."""
    if isinstance(function, ast.Lambda):
        answers: list[Any] = [function.body]
    else:
        annotated = names.annotated(function.returns)
        if any(value.kind == Kind.INSTANCE for value in annotated):
            return annotated
        answers = [each.value for each in own_nodes(function, ast.Return)]
    found: list[Value] = []
    for value in (value for answer in answers for value in names.of(answer)):
        if value.kind == Kind.PARAMETER and function_of(value.node) is function:
            found += names.of(names.argument(value.node, call), frame)
        else:
            found.append(value)
    return tuple(found)


def _getattr(names: Resolving, node: ast.Call, frame: Frame | None) -> Values | None:
    if len(node.args) < 2:
        return None
    bases = names.settled(names.of(node.args[0], frame))
    wanted = texts(names.of(node.args[1], frame))
    found = tuple(value for text in wanted for base in bases for value in _path(names, base, text))
    return found or names.of(node.args[2] if len(node.args) > 2 else None, frame)


def _path(names: Resolving, base: Value, text: str) -> Values:
    found: Values = (base,)
    for part in text.split("."):
        found = tuple(each for value in found for each in member(names, value, part))
    return found


def _imported(names: Resolving, node: ast.Call, frame: Frame | None) -> Values | None:
    wanted = texts(names.of(node.args[0], frame)) if node.args else []
    near = scope_of(node).module.path
    if last_name(node.func) == "safe_import_from" and len(node.args) > 1:
        inner = texts(names.of(node.args[1], frame))
        return tuple(value for text in wanted for name in inner for value in dotted(names, f"{text}.{name}", near))
    return tuple(value for text in wanted for value in dotted(names, text, near))


def _type(names: Resolving, node: ast.Call, frame: Frame | None) -> Values | None:
    return classes(names.settled(names.of(node.args[0], frame))) if len(node.args) == 1 else None


def _vars(names: Resolving, node: ast.Call, frame: Frame | None) -> Values | None:
    return names.of(node.args[0], frame) if node.args else None


def _get(names: Resolving, node: ast.Call, frame: Frame | None) -> Values | None:
    if not isinstance(node.func, ast.Attribute) or not node.args:
        return None
    if spelled(node.func.value) == "sys.modules":
        near = scope_of(node).module.path
        wanted = texts(names.of(node.args[0], frame))
        return tuple(value for text in wanted for value in dotted(names, text, near))
    bases = names.of(node.func.value, frame)
    if any(value.kind == Kind.ITEMS and isinstance(value.node, ast.Dict) for value in bases):
        key: Step = text_of(node.args[0]) or ELEMENT
        return project(names, bases, (key,), frame)
    return None


def _bind(names: Resolving, node: ast.Call, frame: Frame | None) -> Values | None:
    return names.of(node.func.value, frame) if isinstance(node.func, ast.Attribute) else None


def _super(names: Resolving, node: ast.Call, _: Frame | None) -> Values | None:
    around = scope_of(node).class_around()
    if around is None:
        return None
    bases = (value for base in around.node.bases for value in names.of(base))
    return instances(tuple(bases))


def _split(names: Resolving, node: ast.Call, frame: Frame | None) -> Values | None:
    """`"Class.method".split(".")`: the parts of a text."""
    if not isinstance(node.func, ast.Attribute) or len(node.args) > 2 or not node.args:
        return None
    wholes, marks = texts(names.of(node.func.value, frame)), texts(names.of(node.args[0], frame))
    if len(wholes) != 1 or len(marks) != 1 or not marks[0]:
        return None
    most = getattr(node.args[1], "value", -1) if len(node.args) > 1 else -1
    if not isinstance(most, int):
        return None
    whole, mark = wholes[0], marks[0]
    several: dict[str, Callable[[], Iterable[str]]] = {
        "split": lambda: whole.split(mark, most),
        "rsplit": lambda: whole.rsplit(mark, most),
        "partition": lambda: whole.partition(mark),
        "rpartition": lambda: whole.rpartition(mark),
    }
    parts = several[node.func.attr]()
    return (Value(Kind.ITEMS, "", None, None, tuple((Value(Kind.TEXT, part, node),) for part in parts)),)


def dotted(names: Resolving, text: str, near: str) -> Values:
    """What a dotted name in a text means: the longest module in front, members behind."""
    parts = text.replace(":", ".").split(".")
    for length in range(len(parts), 0, -1):
        value = names.module(".".join(parts[:length]), near)
        if value.kind == Kind.MODULE:
            found: Values = (value,)
            for part in parts[length:]:
                found = tuple(each for base in found for each in member(names, base, part))
            return found
    return (Value(Kind.OTHER, text),)


def _subscript(names: Resolving, node: ast.Subscript, frame: Frame | None) -> Values:
    if spelled(node.value) == "sys.modules":
        near = scope_of(node).module.path
        wanted = texts(names.of(node.slice, frame))
        return tuple(value for text in wanted for value in dotted(names, text, near))
    base = names.of(node.value, frame)
    of_dict = isinstance(node.value, ast.Attribute) and node.value.attr == "__dict__"
    if of_dict or (isinstance(node.value, ast.Call) and last_name(node.value.func) == "vars"):
        wanted = texts(names.of(node.slice, frame))
        return tuple(value for text in wanted for each in base for value in member(names, each, text))
    key: Step = node.slice.value if isinstance(node.slice, ast.Constant) else ELEMENT  # type: ignore[assignment]
    if isinstance(node.slice, ast.Slice):
        return base
    return project(names, base, (key,), frame)


def _constant(_: Resolving, node: ast.Constant, __: Frame | None) -> Values:
    return (Value(Kind.TEXT, node.value, node),) if isinstance(node.value, str) else ()


def _text(names: Resolving, node: Any, frame: Frame | None) -> Values:
    """Texts put together: f-strings, and `a + b`."""
    if isinstance(node, ast.BinOp):
        if not isinstance(node.op, ast.Add):
            return ()
        parts = [node.left, node.right]
        sides = [names.of(part, frame) for part in parts]
        if any(value.kind == Kind.ITEMS for side in sides for value in side):
            return tuple(value for side in sides for value in side if value.kind == Kind.ITEMS)
    else:
        parts = [each.value if isinstance(each, ast.FormattedValue) else each for each in node.values]
    whole = [""] if parts else []
    for part in parts:
        ends = texts(names.of(part, frame))
        whole = [before + text for before in whole for text in ends][:MOST_TEXTS]
    return tuple(Value(Kind.TEXT, text, node) for text in whole)


def _either(names: Resolving, node: Any, frame: Frame | None) -> Values:
    parts = node.values if isinstance(node, ast.BoolOp) else (node.body, node.orelse)
    return tuple(value for part in parts for value in names.of(part, frame))


def _inner_value(names: Resolving, node: Any, frame: Frame | None) -> Values:
    return names.of(node.value, frame)


def _display(_: Resolving, node: ast.AST, __: Frame | None) -> Values:
    return (Value(Kind.ITEMS, "", node),)


def _lambda(_: Resolving, node: ast.AST, __: Frame | None) -> Values:
    return (Value(Kind.FUNCTION, "<lambda>", node),)


_SPECIAL: dict[str, Callable[[Any, ast.Call, Frame | None], Values | None]] = {
    "getattr": _getattr,
    **dict.fromkeys(_IMPORTERS, _imported),
    "type": _type,
    "vars": _vars,
    "get": _get,
    "__get__": _bind,
    "super": _super,
    **dict.fromkeys(("split", "rsplit", "partition", "rpartition"), _split),
}
_DISPLAYS = (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
EXPRESSIONS: dict[type, Callable[[Any, Any, Frame | None], Iterable[Value]]] = {
    ast.Name: lambda names, node, frame: names.name(node, frame),
    ast.Attribute: _attribute,
    ast.Call: _call,
    ast.Subscript: _subscript,
    ast.Constant: _constant,
    ast.JoinedStr: _text,
    ast.BinOp: _text,
    ast.IfExp: _either,
    ast.BoolOp: _either,
    **dict.fromkeys((ast.NamedExpr, ast.Await, ast.Starred), _inner_value),
    ast.Lambda: _lambda,
    **dict.fromkeys(_DISPLAYS, _display),
}
