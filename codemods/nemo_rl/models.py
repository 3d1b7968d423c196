"""Which expression is the model that a call's arguments are meant for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.codemods.source import Function, Source
from mcore_unpatch.codemods.syntax import dotted, is_stored, parameters

_NOT_A_MODEL = {"dict", "update", "partial"}


class ModelOf:
    """Finds it by following a mapping to the `**mapping` of a call; an empty text stands for not found."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def of_call(self, call: ast.Call) -> str:
        """The model that is called."""
        func = call.func
        text = self.source.text(func)
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
        parent = self.source.parents[node]
        if isinstance(parent, ast.keyword):
            outer = self.source.parents[parent]
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
        name = self.source.text(mapping)
        scope = self.source.function_of(at) or self.source.tree
        found = {
            self.of_call(call)
            for call in ast.walk(scope)
            if isinstance(call, ast.Call)
            for keyword in call.keywords
            if keyword.arg is None and self.source.text(keyword.value) == name and self._leaf(call) not in _NOT_A_MODEL
        }
        models = {model for model in found if model and self._known_before(model, at)}
        return models.pop() if len(models) == 1 else (self._parameter(at) if not found else "")

    def _leaf(self, call: ast.Call) -> str:
        return self.source.text(call.func).rpartition(".")[2]

    def _is_object(self, func: ast.expr, at: ast.AST) -> bool:
        """Whether a callable is an object at hand, not a function of some module."""
        root, function = dotted(func).partition(".")[0], self.source.function_of(at)
        return bool(root) and function is not None and root in set(_locals(function))

    def _usable(self, node: ast.expr, at: ast.stmt | ast.expr) -> str:
        text = self.source.text(node)
        return text if self._known_before(text, at) and "\n" not in text else ""

    def _known_before(self, text: str, at: ast.stmt | ast.expr) -> bool:
        root = text.partition(".")[0]
        function = self.source.function_of(at)
        if function is None or root in parameters(function):
            return True
        return any(is_stored(node, root) and node.lineno < at.lineno for node in ast.walk(function))  # type: ignore[attr-defined]

    def _passed_along(self, call: ast.Call) -> str:
        """`forward(model, ...)`: an argument that is called a model."""
        named = [keyword.value for keyword in call.keywords if keyword.arg == "model"]
        first = [arg for arg in call.args if self.source.text(arg).rpartition(".")[2].endswith("model")]
        return self._usable((named + first)[0], call) if named + first else ""

    def _parameter(self, at: ast.AST) -> str:
        function = self.source.function_of(at)
        return "model" if function is not None and "model" in parameters(function) else ""


def _locals(function: Function) -> Iterator[str]:
    yield from parameters(function)
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
