"""The flag that asked the patched `GPTModel.forward` for log-probs, wherever it is put into a call's arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from mcore_unpatch.codemods.changes import Change
from mcore_unpatch.codemods.nemo_rl.contract import FLAG, KWARGS
from mcore_unpatch.codemods.nemo_rl.models import ModelOf
from mcore_unpatch.codemods.source import Source, Span


@dataclass(frozen=True, slots=True)
class Flag:
    """One place that passes the flag: the change that replaces it, or why there is none."""

    line: int
    change: Change | None = None
    reason: str = ""


def flags(source: Source) -> Iterator[Flag]:
    """Every place of a file that passes the flag."""
    if FLAG.encode() not in source.data:
        return
    parents = {id(child): node for node in ast.walk(source.tree) for child in ast.iter_child_nodes(node)}
    finder = _Finder(source, ModelOf(source, parents), parents)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.keyword) and node.arg == FLAG:
            yield finder.keyword(node)
        elif isinstance(node, ast.Constant) and node.value == FLAG:
            yield finder.text(node)


class _Finder:
    def __init__(self, source: Source, models: ModelOf, parents: dict[int, ast.AST]) -> None:
        self.source, self.models, self.parents = source, models, parents

    def keyword(self, node: ast.keyword) -> Flag:
        """`model(..., flag=True)`, `dict(flag=True)`, `kwargs.update(flag=True)`."""
        call = self.parents[id(node)]
        if not isinstance(call, ast.Call):
            return self._by_hand(node.value)
        alone = not call.args and len(call.keywords) == 1
        if isinstance(call.func, ast.Name) and call.func.id == "dict":
            new = self._new(node.value, self.models.of_value(call))
            return self._replace(call if alone else node, new if alone else _unpacked(new), node.value, new)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "update":
            new = self._new(node.value, self.models.of_mapping(call.func.value, call))
            return self._replace(node, new if alone else _unpacked(new), node.value, new)
        new = self._new(node.value, self.models.of_call(call))
        return self._replace(node, _unpacked(new), node.value, new)

    def text(self, node: ast.Constant) -> Flag:
        """`{"flag": True}`, `kwargs["flag"] = True`."""
        parent = self.parents[id(node)]
        if isinstance(parent, ast.Dict):
            return self._in_dict(node, parent)
        if isinstance(parent, ast.Subscript):
            statement = self.parents[id(parent)]
            if isinstance(statement, ast.Assign) and statement.targets == [parent]:
                new = self._new(statement.value, self.models.of_mapping(parent.value, statement))
                mapping = self.source.text_of(self.source.span(parent.value))
                return self._replace(statement, f"{mapping}.update({new})", statement.value, new)
        return self._by_hand(node)

    def _in_dict(self, node: ast.Constant, parent: ast.Dict) -> Flag:
        index = next((i for i, key in enumerate(parent.keys) if key is node), None)
        if index is None:
            return self._by_hand(node)
        value = parent.values[index]
        new = self._new(value, self.models.of_value(parent))
        if not new or _is(value, False):
            return self._by_hand(node)
        span = Span(self.source.span(node).start, self.source.span(value).end)
        if len(parent.keys) == 1:
            return Flag(node.lineno, Change(self.source.span(parent), new))
        return Flag(node.lineno, Change(span, _unpacked(new)))

    def _new(self, value: ast.expr, model: str) -> str:
        """The two hook arguments, as an expression; empty where the model is not to be seen."""
        if not model:
            return ""
        call = f"{KWARGS}({model})"
        if _is(value, True):
            return call
        condition = self.source.text_of(self.source.span(value))
        return f"{call} if {condition} else {{}}"

    def _replace(self, node: ast.stmt | ast.expr | ast.keyword, text: str, value: ast.expr, new: str) -> Flag:
        if not new or _is(value, False):
            return self._by_hand(value)
        return Flag(value.lineno, Change(self.source.span(node), text))

    def _by_hand(self, node: ast.expr) -> Flag:
        reason = f"pass `**{KWARGS}(model)` to the call of the model instead of `{FLAG}`, with `labels` as before"
        return Flag(node.lineno, reason=reason)


def _unpacked(new: str) -> str:
    return f"**({new})" if " if " in new else f"**{new}"


def _is(node: ast.expr, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value
