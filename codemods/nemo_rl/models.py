"""Which expression is the model that a call's arguments are meant for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.codemods.source import Source

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_NOT_A_MODEL = {"dict", "update", "partial"}


class ModelOf:
    """Finds it by following a mapping to the `**mapping` of a call; an empty text stands for not found."""

    def __init__(self, source: Source, parents: dict[int, ast.AST]) -> None:
        self.source, self.parents = source, parents

    def of_call(self, call: ast.Call) -> str:
        """The model that is called."""
        func = call.func
        text = self._text(func)
        leaf = text.rpartition(".")[2]
        if leaf == "partial" and call.args:
            return self._usable(call.args[0], call)
        along = self._passed_along(call)
        if along and "model" not in leaf:
            return along
        if isinstance(func, ast.Name | ast.Attribute) and leaf not in _NOT_A_MODEL and self._is_object(func, call):
            return self._usable(func, call)
        return along

    def of_value(self, node: ast.expr) -> str:
        """The model that a new mapping goes to: it is unpacked in a call, or gets a name first."""
        parent = self.parents[id(node)]
        if isinstance(parent, ast.keyword):
            outer = self.parents[id(parent)]
            return self.of_call(outer) if parent.arg is None and isinstance(outer, ast.Call) else ""
        if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "update":
            return self.of_mapping(parent.func.value, parent)
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
            return self.of_mapping(parent.targets[0], parent)
        if isinstance(parent, ast.AnnAssign):
            return self.of_mapping(parent.target, parent)
        if isinstance(parent, ast.BinOp | ast.Dict | ast.IfExp):
            return self.of_value(parent)
        return self._parameter(node)

    def of_mapping(self, mapping: ast.expr, at: ast.stmt | ast.expr) -> str:
        """The model that a named mapping is unpacked for, later in the same function."""
        name = self._text(mapping)
        scope = self._function(at) or self.source.tree
        found = {
            self.of_call(call)
            for call in ast.walk(scope)
            if isinstance(call, ast.Call)
            for keyword in call.keywords
            if keyword.arg is None and self._text(keyword.value) == name and self._leaf(call) not in _NOT_A_MODEL
        }
        models = {model for model in found if model and self._known_before(model, at)}
        return models.pop() if len(models) == 1 else (self._parameter(at) if not found else "")

    def _leaf(self, call: ast.Call) -> str:
        return self._text(call.func).rpartition(".")[2]

    def _text(self, node: ast.expr) -> str:
        return self.source.text_of(self.source.span(node))

    def _function(self, node: ast.AST) -> _Function | None:
        while (parent := self.parents.get(id(node))) is not None:
            if isinstance(parent, _Function):
                return parent
            node = parent
        return None

    def _is_object(self, func: ast.expr, at: ast.AST) -> bool:
        """Whether a callable is an object at hand, not a function of some module."""
        root = func
        while isinstance(root, ast.Attribute):
            root = root.value
        function = self._function(at)
        return isinstance(root, ast.Name) and function is not None and root.id in set(_locals(function))

    def _usable(self, node: ast.expr, at: ast.stmt | ast.expr) -> str:
        text = self._text(node)
        return text if self._known_before(text, at) and "\n" not in text else ""

    def _known_before(self, text: str, at: ast.stmt | ast.expr) -> bool:
        root = text.partition(".")[0]
        function = self._function(at)
        if function is None:
            return True
        if root in set(parameters(function)):
            return True
        names = (node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == root)
        bound = [name.lineno for name in names if isinstance(name.ctx, ast.Store)]
        return bool(bound) and min(bound) < at.lineno

    def _passed_along(self, call: ast.Call) -> str:
        """`forward(model, ...)`: an argument that is called a model."""
        named = [keyword.value for keyword in call.keywords if keyword.arg == "model"]
        first = [arg for arg in call.args if self._text(arg).rpartition(".")[2].endswith("model")]
        return self._usable((named + first)[0], call) if named + first else ""

    def _parameter(self, at: ast.AST) -> str:
        function = self._function(at)
        return "model" if function is not None and "model" in set(parameters(function)) else ""


def parameters(function: _Function) -> Iterator[str]:
    """The names of a function's parameters."""
    spec = function.args
    for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs):
        yield arg.arg


def _locals(function: _Function) -> Iterator[str]:
    yield from parameters(function)
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
