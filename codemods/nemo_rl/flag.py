"""The flag that asked the patched `GPTModel.forward` for log-probs, wherever a call's arguments have to do with it.

Where it is true, the hook arguments take its place. Where it is false, nothing does: without a processor the model
takes Megatron's own path. Every other place is left, with the steps to take there.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from mcore_unpatch.codemods.catalogue.nemo_rl import FLAG, KWARGS, fusion_kwargs
from mcore_unpatch.codemods.changes import Change, Replace, ReplaceItem, Rewrite
from mcore_unpatch.codemods.nemo_rl import steps
from mcore_unpatch.codemods.nemo_rl.mappings import is_asked, is_off, name_of
from mcore_unpatch.codemods.nemo_rl.models import ModelOf
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.source import Function, Source
from mcore_unpatch.codemods.syntax import is_value, parameters

_Place = ast.expr | ReplaceItem
# What replaces the flag, a statement that goes, or the steps to take.
_Found = Replace | ReplaceItem | Rewrite | ast.stmt | str


@dataclass
class Flags:
    """What becomes of the flag in one file."""

    changes: list[Change] = field(default_factory=list)
    on: list[int] = field(default_factory=list)  # lines that ask for log-probs
    steps: list[tuple[int, str]] = field(default_factory=list)  # what to do by hand, by line


def find_flags(source: Source) -> Flags:
    """Every place of a file that has to do with the flag."""
    found = Flags()
    if FLAG.encode() not in source.data:
        return found
    finder = _Finder(source)
    going: list[ast.stmt] = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.keyword) and node.arg == FLAG:
            line, what = node.value.lineno, finder.keyword(node)
        elif isinstance(node, ast.Constant) and node.value == FLAG:
            line, what = node.lineno, finder.text(node)
        else:
            continue
        if isinstance(what, str):
            found.steps.append((line, what))
        elif isinstance(what, ast.stmt):
            going.append(what)
        else:
            found.changes.append(what)
            found.on += [line] if KWARGS in str(what.text) else []
    found.changes += remove(source, going)
    return found


class _Finder:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.models = ModelOf(source)
        functions = [node for node in source.nodes if isinstance(node, Function)]
        self.with_parameter = {function.name for function in functions if FLAG in parameters(function)}

    def keyword(self, node: ast.keyword) -> _Found:
        """`model(..., flag=True)`, `dict(flag=True)`, `kwargs.update(flag=True)`."""
        call, value = self.source.parents[node], node.value
        if not isinstance(call, ast.Call):  # of a class
            return steps.OTHER
        name = self.source.text(call.func).rpartition(".")[2]
        alone = not call.args and len(call.keywords) == 1
        place = ReplaceItem(call, _ordered(call).index(node))
        if name == "dict":
            if alone and not is_value(value, False):
                return self._on(call, value, self.models.of_value(call), unpacked=False)
            overrides = bool(call.args) or self._is_asked(call)
            return self._entry(place, value, self.models.of_value(call), overrides)
        if name == "update" and isinstance(call.func, ast.Attribute):
            return self._updated(call, value, place, place, alone)
        if name in self.with_parameter:
            return steps.PARAMETER.format(function=name)
        return self._entry(place, value, self.models.of_call(call), overrides=False)

    def text(self, node: ast.Constant) -> _Found:
        """`{"flag": True}`, `kwargs["flag"] = True`, `kwargs.setdefault("flag", True)`, `"flag" in kwargs`."""
        parent = self.source.parents[node]
        outer = self.source.parents.get(parent)
        if isinstance(parent, ast.Dict) and node in parent.keys:
            return self._in_dict(node, parent)
        if isinstance(parent, ast.Subscript):
            if isinstance(outer, ast.Assign) and outer.targets == [parent]:
                return self._assigned(parent.value, outer)
            mapping = self.source.text(parent.value)
            step = steps.DELETED if isinstance(outer, ast.Delete) else steps.READ
            return step.format(mapping=mapping)
        if isinstance(parent, ast.Compare) and parent.left is node and isinstance(parent.ops[0], ast.In | ast.NotIn):
            return steps.TEST.format(mapping=self.source.text(parent.comparators[0]))
        if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.args[:1] == [node]:
            return self._method(parent.func, parent)
        return steps.OTHER

    def _assigned(self, mapping: ast.expr, statement: ast.Assign) -> _Found:
        if not is_value(statement.value, True) and not self._may_go(mapping, statement):
            return steps.OFF.format(mapping=self.source.text(mapping))
        if is_value(statement.value, False):
            return statement
        new = self._new(statement.value, self.models.of_mapping(mapping, statement))
        return Rewrite(statement, f"{self.source.text(mapping)}.update({new})") if new else steps.UNSEEN

    def _may_go(self, mapping: ast.expr, at: ast.stmt | ast.expr) -> bool:
        """Whether a mapping is the same with the flag put in as false and without it."""
        return is_off(mapping, at, self.source) and not is_asked(mapping, at, self.source)

    def _is_asked(self, new: ast.expr) -> bool:
        return is_asked(name_of(new, self.source), new, self.source)

    def _updated(self, call: ast.Call, value: ast.expr, entry: ReplaceItem, place: _Place, alone: bool) -> _Found:
        """One entry of what `mapping.update(...)` is given; `alone` if its dict or the call has no other."""
        assert isinstance(call.func, ast.Attribute)
        mapping = call.func.value
        if not is_value(value, True) and not self._may_go(mapping, call):
            return steps.OFF.format(mapping=self.source.text(mapping))
        statement = self.source.parents[call]
        if not is_value(value, False):
            return self._on(place, value, self.models.of_mapping(mapping, call), unpacked=not alone)
        if alone and len(call.args) + len(call.keywords) == 1 and isinstance(statement, ast.Expr):
            return statement
        return entry

    def _in_dict(self, node: ast.Constant, parent: ast.Dict) -> _Found:
        index = next(index for index, key in enumerate(parent.keys) if key is node)
        value, outer = parent.values[index], self.source.parents[parent]
        entry, alone = ReplaceItem(parent, index), len(parent.keys) == 1
        place = parent if alone else entry
        if isinstance(outer, ast.Call) and isinstance(outer.func, ast.Attribute) and outer.func.attr == "update":
            return self._updated(outer, value, entry, place, alone)
        overrides = None in parent.keys[:index] or isinstance(outer, ast.BinOp) or self._is_asked(parent)
        if overrides and not is_value(value, True):
            return steps.OVERRIDES
        if is_value(value, False):
            return entry
        return self._on(place, value, self.models.of_value(parent), unpacked=not alone)

    def _method(self, method: ast.Attribute, call: ast.Call) -> _Found:
        """`setdefault`, `pop` and `get`, with the flag as the key."""
        mapping, statement = self.source.text(method.value), self.source.parents[call]
        default = call.args[1] if len(call.args) == 2 and not call.keywords else None
        if method.attr == "get":
            return steps.READ.format(mapping=mapping)
        if method.attr == "pop":
            if not isinstance(statement, ast.Expr) or default is None:
                return steps.TAKEN.format(mapping=mapping)
            separator = "\n" if self.source.owns_lines(statement) else "; "
            return Rewrite(statement, separator.join(steps.DROP).format(mapping=mapping))
        if method.attr != "setdefault" or default is None or not isinstance(statement, ast.Expr):
            return steps.OTHER
        if is_value(default, False) and not is_asked(method.value, call, self.source):  # what is not there is off
            return statement
        model = self.models.of_mapping(method.value, call)
        if not is_value(default, True) or not model or not is_off(method.value, call, self.source, absent=True):
            return steps.DEFAULT.format(mapping=mapping)
        return Replace(call, f"{mapping}.update({fusion_kwargs(model)})")

    def _entry(self, entry: ReplaceItem, value: ast.expr, model: str, overrides: bool) -> _Found:
        """A keyword among others, which may override what stands before it."""
        if overrides and not is_value(value, True):
            return steps.OVERRIDES
        if is_value(value, False):
            return entry
        return self._on(entry, value, model, unpacked=True)

    def _on(self, place: _Place, value: ast.expr, model: str, *, unpacked: bool) -> _Found:
        """The two hook arguments for a place, under the value as a condition."""
        new = self._new(value, model)
        if unpacked:
            new = new and (f"**{new}" if is_value(value, True) else f"**({new})")
        if not new:
            return steps.UNSEEN
        return replace(place, text=new) if isinstance(place, ReplaceItem) else Replace(place, new)

    def _new(self, value: ast.expr, model: str) -> str:
        """The two hook arguments, as an expression; empty where the model is not to be seen."""
        call = fusion_kwargs(model) if model else ""
        return call if is_value(value, True) or not call else f"{call} if {self.source.text(value)} else {{}}"


def _ordered(call: ast.Call) -> list[ast.expr | ast.keyword]:
    """The arguments in the order of the text."""
    return sorted([*call.args, *call.keywords], key=lambda one: (one.lineno, one.col_offset))
