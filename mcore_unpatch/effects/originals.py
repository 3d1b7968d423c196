"""How a replacement comes to what it replaced, by what its names were bound to: never by how they are called."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from mcore_unpatch.code.module import inner_scope, scope_of
from mcore_unpatch.code.names import Names
from mcore_unpatch.code.syntax import (
    FUNCTIONS,
    argument,
    default_of,
    function_of,
    last_name,
    parameters,
    parent_of,
    spelled,
    text_of,
)
from mcore_unpatch.code.values import Kind, Value
from mcore_unpatch.patches.records import Patch, Spelling

_READERS = ("getattr", "getattr_static")
_DEEPEST = 3  # a name of a name of a name


class Originals:
    """Where one replacement has what it replaced."""

    def __init__(self, names: Names, patch: Patch, function: Any, is_alone: bool) -> None:
        self._names, self._patch, self._function, self._is_alone = names, patch, function, is_alone
        self._owner, _, self._attribute = patch.target.rpartition(".")

    @cached_property
    def is_given_first(self) -> bool:
        """`wrap_function_wrapper("module", "name", f)`: a wrapper is given the original, then what the caller gave."""
        call = self._patch.write.place if self._patch.write is not None else self._patch.place
        return isinstance(call, ast.Call) and "wrap" in last_name(call.func).lower()

    @cached_property
    def reads(self) -> list[ast.AST]:
        """The expressions of the replacement that stand for the original, and the calls of helpers that have such."""
        if self._function is None:
            value = self._patch.write.value if self._patch.write is not None else None
            inside = ast.walk(value) if isinstance(value, ast.Call) else ()
            return [node for node in inside if isinstance(node, (ast.Attribute, ast.Call)) and self._reads(node)]
        return list(self._reads_in(self._function))

    @cached_property
    def calls(self) -> list[ast.Call]:
        """The calls of the original."""
        held = {id(node) for node in self.reads}
        body = ast.walk(self._function) if self._function is not None else ()
        return [node for node in body if isinstance(node, ast.Call) and id(_without_cast(node.func)) in held]

    @property
    def reads_by_name(self) -> list[ast.AST]:
        """`getattr(x, name)` in the value that is set, with the very name that it is set under."""
        write = self._patch.write
        inside = ast.walk(write.value) if write is not None and isinstance(write.value, ast.Call) else ()
        calls = (node for node in inside if isinstance(node, ast.Call) and len(node.args) == 2)
        return [node for node in calls if last_name(node.func) in _READERS and self._reads_by_name(node)]

    def _reads_in(self, function: Any) -> Iterator[ast.AST]:
        body = function.body if isinstance(function.body, list) else [function.body]
        own = {arg.arg for arg in parameters(function)}
        for node in (node for statement in body for node in ast.walk(statement)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                if (node.id not in own or self._is_given(node.id, function)) and self._holds(node, _DEEPEST):
                    yield node
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                if self._is_kept(node.attr) or self._is_read_of_class(node):
                    yield node
            elif isinstance(node, ast.Call):
                text = text_of(node.args[1]) if last_name(node.func) in _READERS and len(node.args) > 1 else None
                if text is not None and self._is_kept(text):
                    yield node

    def _is_given(self, name: str, function: Any) -> bool:
        """Whether a parameter holds the original: by its default, by `partial`, or given by a wrapper's library."""
        args = function.args.posonlyargs + function.args.args
        if self.is_given_first and args and args[0].arg == name and function is self._function:
            return True
        value = self._patch.write.value if self._patch.write is not None else None
        if isinstance(value, ast.Call) and value.args and self._names_function(value.args[0], function):
            for arg, given in zip(args, value.args[1:], strict=False):
                if arg.arg == name:
                    return self.stands_for(given)
            words = [word.value for word in value.keywords if word.arg == name]
            if words:
                return self.stands_for(words[0])
        default = next((default_of(arg) for arg in parameters(function) if arg.arg == name), None)
        return default is not None and self.stands_for(default)

    def _names_function(self, node: ast.expr, function: Any) -> bool:
        return isinstance(node, ast.Name) and any(one.node is function for one in self._names.of(node))

    # -- what stands for it ------------------------------------------------------------------------------------------

    def stands_for(self, node: ast.AST | None) -> bool:
        """Whether an expression beside the patch stands for what is replaced."""
        node = _without_cast(node)
        return self._reads(node) or (isinstance(node, ast.Name) and self._holds(node, _DEEPEST))

    def _holds(self, node: ast.Name, depth: int) -> bool:
        """Whether everything that a name was bound to is the original."""
        home = scope_of(node).home_of(node.id)
        if home is None or not depth:
            return False
        found = False
        for binding in home.names[node.id]:
            if isinstance(binding.node, ast.arg):
                if not self._parameter_holds(binding.node):
                    return False
            elif isinstance(binding.value, ast.alias):
                if not self._is_target(self._names.bound_to(binding, home, None)):
                    return False
            elif isinstance(binding.value, ast.Constant) and binding.value.value is None:
                continue  # until the patch is made
            else:
                value = _without_cast(binding.value)
                if binding.path or not (
                    self._reads(value)
                    or (isinstance(value, ast.Name) and value.id != node.id and self._holds(value, depth - 1))
                ):
                    return False
            found = True
        return found

    def _parameter_holds(self, arg: ast.arg) -> bool:
        """A parameter of the replacement, or of the factory that made it."""
        function = function_of(arg)
        if self._is_given(arg.arg, function):
            return True
        value = self._patch.write.value if self._patch.write is not None else None
        if isinstance(value, ast.Call) and self._names_function(value.func, function):
            return self.stands_for(argument(arg, value, False))
        if self._patch.spelling == Spelling.STRING_TARGET and function is not self._function:
            return len(parameters(function)) == 1  # a registry hands the original to what makes the replacement
        return self._is_target(self._names.settled((Value(Kind.PARAMETER, arg.arg, arg),)))

    def _reads(self, node: ast.AST | None) -> bool:
        """`x.name`, `getattr(x, "name")`, `x.__dict__["name"]`, outside of the replacement."""
        node = _without_cast(node)
        if isinstance(node, ast.Attribute):
            if node.attr in ("__func__", "__wrapped__"):
                return self._reads(node.value)
            return node.attr == self._attribute
        if isinstance(node, ast.Call) and last_name(node.func) in _READERS and len(node.args) > 1:
            return text_of(node.args[1]) == self._attribute or self._reads_by_name(node)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "__dict__":
            return text_of(node.slice) == self._attribute or self._reads_by_name(node)
        return isinstance(node, ast.Name) and self._is_target(self._names.of(node))

    def _reads_by_name(self, node: ast.Call | ast.Subscript) -> bool:
        """`getattr(x, name)` with the very name that is set."""
        write = self._patch.write
        asked = node.args[1] if isinstance(node, ast.Call) else node.slice
        return write is not None and isinstance(write.name, ast.Name) and spelled(asked) == write.name.id

    def _is_target(self, values: tuple[Value, ...]) -> bool:
        library = self._names.library
        symbol = library.symbol(self._patch.target)
        wanted = {self._patch.target, symbol.name if symbol is not None else ""}
        kinds = (Kind.FUNCTION, Kind.CLASS)
        return bool(values) and all(one.kind in kinds and one.node is None and one.name in wanted for one in values)

    def _is_read_of_class(self, node: ast.Attribute) -> bool:
        """`super().f`, `Base.f`, and for an object that was patched alone `Class.f`: these still have the original."""
        if node.attr != self._attribute:
            return False
        own_member = self._names.library.own_member(self._owner, self._attribute)
        if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name):
            if node.value.func.id == "type":
                return self._is_alone
            if node.value.func.id == "super":
                own = inner_scope(self._function).class_around() if isinstance(self._function, FUNCTIONS) else None
                return own is not None or own_member is None
        bases = self._names.of(node.value)
        if len(bases) != 1 or bases[0].kind != Kind.CLASS:
            return False
        above = self._names.library.lineage(self._owner)[1:]
        return (bases[0].name in above and own_member is None) or (self._is_alone and bases[0].name == self._owner)

    def _is_kept(self, name: str) -> bool:
        """Whether an attribute of any object keeps what was read from there: `x._forward = x.forward`."""
        return name in self._kept and name != self._attribute

    @cached_property
    def _kept(self) -> set[str]:
        homes = {self._patch.module.path: self._patch.module}
        if self._function is not None:
            homes[scope_of(self._function).module.path] = scope_of(self._function).module
        kept: set[str] = set()
        for module in homes.values():
            for store in module.stores:
                name = store.target.attr if isinstance(store.target, ast.Attribute) else _key(store.target)
                if name and not store.path and self.stands_for(store.value):
                    kept.add(name)
            for call in module.calls:
                if last_name(call.func) == "setattr" and len(call.args) == 3 and (text := text_of(call.args[1])):
                    if self.stands_for(call.args[2]):
                        kept.add(text)
        return kept


def _key(target: ast.Subscript) -> str:
    of_dict = isinstance(target.value, ast.Attribute) and target.value.attr == "__dict__"
    return (text_of(target.slice) or "") if of_dict else ""


def _without_cast(node: Any) -> Any:
    """`x` of `cast(Any, x)`; anything else as it is."""
    while isinstance(node, ast.Call) and last_name(node.func) == "cast" and len(node.args) == 2:
        node = node.args[1]
    return node


def is_called_once(function: Any, calls: list[ast.Call]) -> bool:
    """Whether a function makes one call whatever happens: it stands there once, in no branch and no loop."""
    if len(calls) != 1:
        return False
    node: Any = calls[0]
    may_not = (ast.IfExp, ast.BoolOp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
    while (parent := parent_of(node)) is not None and node is not function:
        if isinstance(parent, (ast.If, ast.For, ast.While, ast.AsyncFor, ast.Match)):
            return False
        if isinstance(parent, may_not) or (isinstance(parent, ast.Try) and parent.handlers):
            return False
        block = getattr(parent, "body", None)
        above = block[: block.index(node)] if isinstance(block, list) and node in block else []
        if parent is function or isinstance(parent, (ast.With, ast.Try)):
            if any(isinstance(inner, ast.Return) for one in above for inner in ast.walk(one)):
                return False
        node = parent
    return True
