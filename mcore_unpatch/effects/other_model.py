"""What becomes of a patch when another model of the library does the work: facts alone.

A table of rows says what that model has in common with the one that patches are written for; the code around a patch
says who is asked for, and what the replacement asks of an object that is another one then.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from mcore_unpatch.code.conditions import tests
from mcore_unpatch.code.module import qualified, scope_of
from mcore_unpatch.code.names import Names
from mcore_unpatch.code.syntax import (
    NAMED_FUNCTIONS,
    ancestors,
    last_name,
    own_nodes,
    parameters,
    parent_of,
    spelled,
    walk,
)
from mcore_unpatch.code.values import Kind, Value
from mcore_unpatch.effects.replaced import Replaced
from mcore_unpatch.library.interface import Release
from mcore_unpatch.patches.alive import only_calls

_DEEPEST = 3  # callers of callers


class Becomes(StrEnum):
    """What becomes of a patch on the other model."""

    ACTS = "acts"
    DEAD = "dead"  # it is never called, and nobody says so
    RAISES = "raises"
    RENUMBERED = "renumbered"  # it acts, and layers have other numbers
    HALVES = "halves"  # it runs on each half of a layer
    UNKNOWN = "unknown"


class Why(StrEnum):
    """Where that is known from."""

    ROW = "row"  # of the table
    ASKED = "asked"  # it stands behind a question for a class that the other model is not
    GIVEN = "given"  # a function that gives what is patched gives nothing of the other model
    SUBCLASS = "subclass"  # a method of a subclass of the model makes it
    LACKS = "lacks"  # the other model has no such method
    READS = "reads"  # the replacement reads what the other model lacks
    PASSES = "passes"  # the replacement passes the original what the other model's does not take
    NUMBERS = "numbers"  # the replacement asks for the number of a layer


class Elsewhere(NamedTuple):
    """What becomes of one patch; name: the class, member, parameter or row that it is due to."""

    becomes: Becomes
    why: Why = Why.ROW
    name: str = ""
    line: int = 0  # of the question, in the file of the patch


class Row(NamedTuple):
    """What the other model's structure says of some names; unseen: why no test counts their calls."""

    name: str
    targets: str  # a regular expression over whole dotted names
    becomes: Becomes
    why: str
    says: str = ""  # what the file of the replacement has to say, for the row to fit
    unseen: str = ""


class OtherModel(NamedTuple):
    """A model of the library that takes the place of another one."""

    model: str
    counterparts: Mapping[str, str]  # what has the place of each class that it does without
    rows: Sequence[Row]  # the first that fits is meant
    numbers: str  # words for the number of a layer
    unnumbered: str  # names for which such words mean something else


class OnOther:
    """Answers for the patches of one repository."""

    def __init__(self, names: Names, other: OtherModel, release: Release) -> None:
        self.names, self.other, self._release = names, other, release
        self._rows = [(row, re.compile(row.targets)) for row in other.rows]
        self._numbers, self._unnumbered = re.compile(other.numbers), re.compile(other.unnumbered)
        self._kept = {name for cls in (other.model, *other.counterparts.values()) for name in self._lineage(cls)}

    def of(self, case: Replaced) -> Elsewhere:
        """What becomes of a patch."""
        write = case.patch.write
        places = [case.patch.place, *([write.place] if write is not None else [])]
        for place in {id(one): one for one in places}.values():
            if (found := self._on_the_way(place, _DEEPEST)) is not None:
                return found
        found = self._of_object(case) if case.is_alone else None
        return found or self._of_row(case) or self._numbered(case) or Elsewhere(Becomes.ACTS)

    # -- who is asked for on the way to it ---------------------------------------------------------------------------

    def _on_the_way(self, place: Any, depth: int) -> Elsewhere | None:
        """Why a place is not reached, or raises, with the other model; nothing where it may be reached."""
        if (asked := self._asked(place)) is not None:
            return asked
        function = scope_of(place).outermost_function()
        for parent, _ in ancestors(place):
            if isinstance(parent, ast.ClassDef) and self._is_gone(Value(Kind.CLASS, qualified(parent), parent)):
                return Elsewhere(Becomes.DEAD, Why.SUBCLASS, parent.name, parent.lineno)
        if function is None:
            return None
        if (given := self._given(place, function.node)) is not None:
            return given
        calls = only_calls(self.names, function.node) if depth else []
        found = [self._on_the_way(call, depth - 1) for call in calls]
        return found[0] if found and all(found) else None

    def _asked(self, place: Any) -> Elsewhere | None:
        for test, truth in tests(place, {}):
            if not isinstance(test, ast.Call) or last_name(test.func) != "isinstance" or len(test.args) != 2:
                continue
            classes = self._classes(test.args[1])
            gone = bool(classes) and all(map(self._is_gone, classes))
            taken = any(value.name == self.other.model for value in classes)
            if (truth and gone) or (not truth and taken):
                becomes = Becomes.RAISES if _raises(test) else Becomes.DEAD
                return Elsewhere(becomes, Why.ASKED, classes[0].name, test.lineno)
        return None

    def _classes(self, node: ast.expr) -> list[Value]:
        """The classes that `isinstance` asks for; none where one of them is not known."""
        if isinstance(node, ast.Tuple | ast.List):
            parts = [self._classes(one) for one in node.elts]
            return [value for part in parts for value in part] if all(parts) else []
        if isinstance(node, ast.BinOp):
            left, right = self._classes(node.left), self._classes(node.right)
            return left + right if left and right else []
        found: list[Value] = []
        for value in self.names.of(node):
            if value.kind == Kind.ITEMS and isinstance(value.node, ast.Tuple | ast.List):
                found += self._classes(value.node)
            elif value.kind == Kind.CLASS:
                found.append(value)
            else:
                return []
        return found

    def _is_gone(self, value: Value) -> bool:
        """Whether a class is one of those that the other model does without."""
        lineage = {one.name for one in self.names.lineage(value)}
        return value.name not in self._kept and not lineage.isdisjoint(self.other.counterparts)

    def _given(self, place: ast.AST, function: Any) -> Elsewhere | None:
        """Whether what is patched, or the parameter it comes from, is given by a function that knows no other model."""
        own = {arg.arg for arg in parameters(function)}
        near = {node.id for node in walk(place) if isinstance(node, ast.Name)}
        for store in own_nodes(function, ast.Assign):
            name = spelled(store.targets[0])
            if store.lineno >= place.lineno or name not in own | near or not isinstance(store.value, ast.Call):
                continue
            for value in self.names.of(store.value.func):
                if value.kind == Kind.FUNCTION and isinstance(value.node, NAMED_FUNCTIONS):
                    if self._gives_nothing(value.node):
                        raises = isinstance(value.node.body[-1], ast.Raise)
                        return Elsewhere(Becomes.RAISES if raises else Becomes.DEAD, Why.GIVEN, value.node.name)
        return None

    def _gives_nothing(self, function: Any) -> bool:
        """Whether all that a function returns stands behind such a question."""
        returns = own_nodes(function, ast.Return)
        given = [one for one in returns if not (one.value is None or getattr(one.value, "value", "") is None)]
        return bool(given) and all(self._asked(one) is not None for one in given)

    # -- what the structure says -------------------------------------------------------------------------------------

    def _of_object(self, case: Replaced) -> Elsewhere | None:
        """Of a patch of one object, which may be of the other class: what that lacks or does not take."""
        replaced = [one for one in self.names.library.lineage(case.owner) if one in self.other.counterparts]
        if not replaced:
            return None
        now = self.other.counterparts[replaced[0]]
        if self._lacks(replaced[0], now, case.attribute):
            return Elsewhere(Becomes.DEAD, Why.LACKS, f"{now}.{case.attribute}")
        first = next(iter(parameters(case.function)), None) if case.function is not None else None
        for node in walk(case.function) if first is not None else ():
            is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == first.arg
            if is_own and isinstance(node.ctx, ast.Load) and self._lacks(replaced[0], now, node.attr):
                return Elsewhere(Becomes.RAISES, Why.READS, f"{now}.{node.attr}", node.lineno)
        taken = self._release.parameters(f"{now}.{case.attribute}")
        for word in (word for call in case.originals.calls for word in call.keywords) if taken else ():
            if word.arg is not None and word.arg not in (taken or ()):
                return Elsewhere(Becomes.RAISES, Why.PASSES, word.arg, word.value.lineno)
        return Elsewhere(Becomes.ACTS)

    def _lacks(self, before: str, now: str, name: str) -> bool:
        return bool(self._release.has(f"{before}.{name}")) and self._release.has(f"{now}.{name}") is False

    def _of_row(self, case: Replaced) -> Elsewhere | None:
        symbol = self.names.library.symbol(case.target)
        written = [case.target, *([symbol.name] if symbol is not None and not case.is_of_class else [])]
        for row, targets in self._rows:
            if targets.fullmatch(written[0]) is not None:
                texts = (self.names.index.sources[home.path].decode(errors="replace") for home in case.homes)
                if not row.says or any(re.search(row.says, text) for text in texts):
                    return Elsewhere(row.becomes, Why.ROW, row.name)
        return None

    def _numbered(self, case: Replaced) -> Elsewhere | None:
        """A replacement that says the number of a layer, itself or in a function that it calls."""
        if self._unnumbered.fullmatch(case.target) is not None:
            return None
        called = (
            value.node
            for function in case.functions
            for call in walk(function)
            if isinstance(call, ast.Call)
            for value in self.names.of(call.func)
            if value.kind == Kind.FUNCTION and isinstance(value.node, NAMED_FUNCTIONS)
        )
        for function in (*case.functions, *called):
            for word in _words(function):
                if self._numbers.fullmatch(word) is not None:
                    return Elsewhere(Becomes.RENUMBERED, Why.NUMBERS, word)
        return None

    def _lineage(self, cls: str) -> Iterable[str]:
        return self.names.library.lineage(cls)


def _words(function: Any) -> Iterator[str]:
    return (last_name(node) for node in walk(function) if isinstance(node, ast.Name | ast.Attribute))


def _raises(test: ast.AST) -> bool:
    """Whether an exception follows where a question comes out otherwise."""
    statement = next(one for one, _ in ancestors(test) if isinstance(one, ast.stmt))
    is_if = isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Raise)
    return isinstance(statement, ast.Assert) or (is_if and parent_of(test) is not None)
