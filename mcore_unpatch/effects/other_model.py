"""What becomes of a patch when another model of the library does the work: facts alone.

A table of rows says what the other model's structure does to a name. The code around a patch says who is asked for, and
the replacement what it asks of an object that is another one then.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from mcore_unpatch.code.conditions import tests
from mcore_unpatch.code.module import Module, qualified, scope_of
from mcore_unpatch.code.names import Names
from mcore_unpatch.code.syntax import NAMED_FUNCTIONS, ancestors, last_name, own_nodes, parameters, spelled, walk
from mcore_unpatch.code.values import Kind, Value
from mcore_unpatch.effects.replaced import Replaced
from mcore_unpatch.library.detailed import Detailed
from mcore_unpatch.patches.alive import only_calls

_DEEPEST = 3  # callers of callers


class Becomes(StrEnum):
    """What becomes of a patch on the other model."""

    ACTS = "acts"
    DEAD = "dead"  # it does nothing, and nobody says so
    RAISES = "raises"
    RENUMBERED = "renumbered"  # it acts, and layers have other numbers
    HALVES = "halves"  # it runs on each half of a layer
    UNKNOWN = "unknown"


class Why(StrEnum):
    """Where that is known from."""

    ROW = "row"  # of the table
    ASKED = "asked"  # it stands behind a question for a class that the other model is not
    GIVEN = "given"  # the function that gives what is patched knows no other model
    SUBCLASS = "subclass"  # a method of a subclass makes it
    LACKS = "lacks"  # the other model has no such method
    READS = "reads"  # the replacement reads what the other model lacks
    PASSES = "passes"  # the replacement passes the original what the other model's does not take
    NUMBERS = "numbers"  # the replacement says the number of a layer


ON_THE_WAY = (Why.ASKED, Why.GIVEN, Why.SUBCLASS)


class Elsewhere(NamedTuple):
    """What becomes of one patch; name: the class, function, member or word that it is due to, or the row's reason."""

    becomes: Becomes
    why: Why = Why.ROW
    name: str = ""
    line: int = 0  # of what the code says


class OtherRow(NamedTuple):
    """What the other model's structure does to some names, and all below them; unseen: why no test counts calls."""

    names: tuple[str, ...]
    becomes: Becomes
    why: str = ""
    unseen: str = ""


class OtherModel(NamedTuple):
    """A model of the library that takes the place of another one."""

    model: str
    counterparts: Mapping[str, str]  # what has the place of each class that it does without
    rows: Sequence[OtherRow]
    numbers: str  # words for the number of a layer


class OnOther:
    """Answers for the patches of one repository."""

    def __init__(self, names: Names, other: OtherModel, release: Detailed) -> None:
        self._names, self._other, self._release = names, other, release
        models = (other.model, *other.counterparts.values())
        self._there = {name for cls in models for name in names.library.lineage(cls)}

    def of(self, case: Replaced) -> Elsewhere:
        """What becomes of a patch."""
        write = case.patch.write
        asked = self._on_the_way(case.patch.place, _DEEPEST)
        asked = asked or (self._on_the_way(write.place, _DEEPEST) if write is not None else None)
        of_object = self._of_object(case) if case.is_alone else None
        return asked or of_object or self._of_row(case) or self._numbered(case) or Elsewhere(Becomes.ACTS)

    def builders(self, modules: Iterable[Module]) -> int:
        """How many places build a model that the other one does without, register or derive from it."""
        found = 0
        for node in (node for module in modules for node in walk(module.tree)):
            used = node.bases if isinstance(node, ast.ClassDef) else []
            if isinstance(node, ast.Call) and last_name(node.func) not in ("isinstance", "issubclass", "super"):
                used = [node.func, *node.args, *(word.value for word in node.keywords)]
            classes = (one for one in used if last_name(one)[:1].isupper())
            found += any(map(self._is_gone, (value for one in classes for value in self._names.of(one))))
        return found

    # -- who is asked for on the way to it ---------------------------------------------------------------------------

    def _on_the_way(self, place: Any, depth: int) -> Elsewhere | None:
        """Why a place is not reached, or raises, with the other model; nothing where it may be reached."""
        if (asked := self._asked(place)) is not None:
            return asked
        for parent, _ in ancestors(place):
            if isinstance(parent, ast.ClassDef) and self._is_gone(Value(Kind.CLASS, qualified(parent), parent)):
                return Elsewhere(Becomes.DEAD, Why.SUBCLASS, parent.name, parent.lineno)
        around = scope_of(place).outermost_function()
        if around is None:
            return None
        calls = only_calls(self._names, around.node) if depth else []
        found = [self._on_the_way(call, depth - 1) for call in calls]
        return self._given(place, around.node) or (found[0] if found and all(found) else None)

    def _asked(self, place: Any) -> Elsewhere | None:
        for test, truth in tests(place, {}):
            if isinstance(test, ast.Call) and last_name(test.func) == "isinstance" and len(test.args) == 2:
                classes = self._classes(test.args[1])
                gone = bool(classes) and all(map(self._is_gone, classes))
                if (truth and gone) or (not truth and any(one.name == self._other.model for one in classes)):
                    becomes = Becomes.RAISES if _raises(test) else Becomes.DEAD
                    return Elsewhere(becomes, Why.ASKED, classes[0].name, test.lineno)
        return None

    def _classes(self, node: ast.expr) -> list[Value]:
        """The classes that `isinstance` asks for; none where one of them is not known."""
        parts = [node.left, node.right] if isinstance(node, ast.BinOp) else getattr(node, "elts", [])
        found = [self._classes(part) for part in parts]
        for value in self._names.of(node) if not parts else ():
            is_display = value.kind == Kind.ITEMS and bool(getattr(value.node, "elts", ()))
            found.append(self._classes(value.node) if is_display else [value] * (value.kind == Kind.CLASS))
        return [value for part in found for value in part] if all(found) else []

    def _is_gone(self, value: Value) -> bool:
        """Whether a class is one of those that the other model does without."""
        lineage = {one.name for one in self._names.lineage(value)} if value.kind == Kind.CLASS else set()
        return value.name not in self._there and not lineage.isdisjoint(self._other.counterparts)

    def _given(self, place: ast.AST, function: Any) -> Elsewhere | None:
        """Whether what is patched, or what it comes from, is given by a function that knows no other model."""
        used = {arg.arg for arg in parameters(function)}
        used |= {node.id for node in walk(place) if isinstance(node, ast.Name)}
        for store in own_nodes(function, ast.Assign):
            call, name = store.value, spelled(store.targets[0])
            if name in used and isinstance(call, ast.Call) and store.lineno < getattr(place, "lineno", 0):
                for giver in (value.node for value in self._names.of(call.func) if value.kind == Kind.FUNCTION):
                    if isinstance(giver, NAMED_FUNCTIONS) and self._gives_nothing(giver):
                        becomes = Becomes.RAISES if isinstance(giver.body[-1], ast.Raise) else Becomes.DEAD
                        return Elsewhere(becomes, Why.GIVEN, giver.name, store.lineno)
        return None

    def _gives_nothing(self, function: Any) -> bool:
        """Whether all that a function returns stands behind such a question."""
        returns = [one for one in own_nodes(function, ast.Return) if ast.unparse(one) not in ("return", "return None")]
        return bool(returns) and all(self._asked(one) is not None for one in returns)

    # -- what the structure says -------------------------------------------------------------------------------------

    def _of_object(self, case: Replaced) -> Elsewhere | None:
        """Of a patch of one object, which may be of the other class: what that lacks or does not take."""
        mine = next((one for one in self._names.library.lineage(case.owner) if one in self._other.counterparts), "")
        if not mine:
            return None
        other = self._other.counterparts[mine]
        if self._lacks(mine, other, case.attribute):
            return Elsewhere(Becomes.DEAD, Why.LACKS, f"{other}.{case.attribute}")
        first = next((arg.arg for arg in parameters(case.function)), "") if case.function is not None else ""
        for node in walk(case.function) if first else ():
            if isinstance(node, ast.Attribute) and spelled(node.value) == first and isinstance(node.ctx, ast.Load):
                if self._lacks(mine, other, node.attr):
                    return Elsewhere(Becomes.RAISES, Why.READS, f"{other}.{node.attr}", node.lineno)
        taken = self._release.parameters(f"{other}.{case.attribute}")
        for word in (word for call in case.originals.calls for word in call.keywords):
            if taken is not None and word.arg is not None and word.arg not in taken:
                return Elsewhere(Becomes.RAISES, Why.PASSES, word.arg, word.value.lineno)
        return Elsewhere(Becomes.ACTS)

    def _lacks(self, mine: str, other: str, name: str) -> bool:
        return bool(self._release.has(f"{mine}.{name}")) and self._release.has(f"{other}.{name}") is False

    def _of_row(self, case: Replaced) -> Elsewhere | None:
        for row in self._other.rows:
            if any(f"{case.target}.".startswith(f"{name}.") for name in row.names):
                return Elsewhere(row.becomes, Why.ROW, row.why)
        return None

    def _numbered(self, case: Replaced) -> Elsewhere | None:
        """A replacement that says the number of a layer, itself or in a function that it calls."""
        calls = (node for function in case.functions for node in walk(function) if isinstance(node, ast.Call))
        called = (value.node for call in calls for value in self._names.of(call.func) if value.kind == Kind.FUNCTION)
        for function in (*case.functions, *filter(None, called)):
            for node in walk(function):
                word = node.arg if isinstance(node, ast.keyword) else last_name(node)
                if re.fullmatch(self._other.numbers, word or "") is not None and not _is_handed_on(node):
                    return Elsewhere(Becomes.RENUMBERED, Why.NUMBERS, word or "", getattr(node, "lineno", 0))
        return None


def _is_handed_on(node: ast.AST) -> bool:
    """Whether a parameter is only given to another call, as the original would: that asks for nothing."""
    given = node.value if isinstance(node, ast.keyword) else node
    around, _ = next(ancestors(given))
    return isinstance(given, ast.Name) and given in (*getattr(around, "args", ()), getattr(around, "value", None))


def _raises(test: ast.AST) -> bool:
    """Whether an exception follows where a question comes out otherwise."""
    statement = next(one for one, _ in ancestors(test) if isinstance(one, ast.stmt))
    return isinstance(statement, ast.Assert) or isinstance(getattr(statement, "body", [None])[-1], ast.Raise)
