"""What a hunk does to each definition that its lines stand in: statements, parameters, and what cannot be read."""

from __future__ import annotations

import ast
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

from mcore_unpatch.megatron.definitions import Function, parameters
from mcore_unpatch.scanner.sources import fragments
from mcore_unpatch.scanner.sources.fragments import Statement
from mcore_unpatch.scanner.sources.hunks import DEFINITION, Hunk, Place


@dataclass(slots=True)
class Side:
    """One side of a hunk within one definition."""

    statements: list[Statement] = field(default_factory=list)
    changed: list[bool] = field(default_factory=list)  # for each statement whether the hunk touches it
    signature: str | None = None  # where the head is touched and whole
    defaults: dict[str, str] = field(default_factory=dict)  # of its parameters, and their annotations
    parameters: dict[str, str] = field(default_factory=dict)  # of a head that is cut, those on lines that are touched
    unread: list[str] = field(default_factory=list)  # lines that are touched and belong to no whole statement
    split: bool = False  # its statements do not stand one after the other

    @property
    def touched(self) -> list[Statement]:
        """The statements that the hunk adds or takes away."""
        return [one for one, changed in zip(self.statements, self.changed, strict=True) if changed]


@dataclass(slots=True)
class Segment:
    """What one hunk does to one definition."""

    hunk: Hunk
    old: Side = field(default_factory=Side)
    new: Side = field(default_factory=Side)
    lines: list[int] = field(default_factory=list)  # of the patch, those that are touched
    adds: ast.stmt | None = None  # the definition itself, where the hunk adds it whole
    is_new: bool = False

    @property
    def unread(self) -> bool:
        """Whether more than comments changes in what cannot be read."""
        told = ((side.defaults, side.parameters) for side in (self.old, self.new))
        heads = [old[name] != new[name] for old, new in zip(*told, strict=True) for name in old.keys() & new.keys()]
        return self.old.unread != self.new.unread or self.old.split or self.new.split or any(heads)

    @property
    def has_code(self) -> bool:
        """Whether more changes than comments, docstrings and blank lines."""
        heads = self.old.signature != self.new.signature or self.old.parameters != self.new.parameters
        return bool(self.unread or heads or self.adds or self.is_new or self.moved or self.added or self.removed)

    @property
    def moved(self) -> bool:
        """Whether statements stand in other blocks or in another order afterwards."""
        places = [[(one.digest, one.depth, one.block) for one in side.statements] for side in (self.old, self.new)]
        return places[0] != places[1]

    @property
    def added(self) -> list[Statement]:
        """The statements that it brings in, those left out that only move."""
        return _beyond(self.new.touched, self.old.touched)

    @property
    def removed(self) -> list[Statement]:
        """The statements that it takes away."""
        return _beyond(self.old.touched, self.new.touched)

    def runs(self) -> Iterator[list[Statement]]:
        """The statements that stand in place of others, run by run."""
        added = {id(one) for one in self.added}
        for is_added, run in groupby(self.new.statements, key=lambda one: id(one) in added):
            if is_added:
                yield list(run)


def read(hunk: Hunk, place: Place) -> dict[str, Segment]:
    """The definitions that a hunk changes, by name; `place` is where the line above its first stands."""
    places = hunk.places(place)
    names, own = _names(hunk, places, place)
    found: dict[str, Segment] = {}
    for mark in "-+":
        _read_side(hunk, mark, names, places, found)
    entangled = hunk.entangled(place)
    for name, segment in found.items():
        if name in own:
            segment.is_new = True
            segment.adds = _whole(hunk, name, names, own[name])
        segment.new.split = segment.new.split or name in entangled
    return {name: one for name, one in found.items() if one.lines}


def _names(hunk: Hunk, places: list[Place], place: Place) -> tuple[list[str], dict[str, int]]:
    """The definition that each line belongs to, of an added class the class alone; and where added ones begin."""
    names: list[str] = []
    own: dict[str, int] = {}
    before = place
    for index, (line, at) in enumerate(zip(hunk.lines, places, strict=True)):
        added_class = line[:1] == "+" and at.cls != place.cls and bool(at.cls)
        name = at.cls if added_class else at.name
        names.append(name)
        if line[:1] == "+" and DEFINITION.match(line[1:]) and name and at != before and name not in own:
            own[name] = index
        if line[:1] != "+":
            place = at
        before = at
    _give_to_what_follows(hunk, names)
    removed = {name for line, name in zip(hunk.lines, names, strict=True) if line[:1] == "-" and _begins(line, name)}
    return names, {name: index for name, index in own.items() if name not in removed}


def _give_to_what_follows(hunk: Hunk, names: list[str]) -> None:
    """Decorators, and comments that are added with a definition, belong to what stands below them."""
    below = {"-": "", "+": ""}
    for index in reversed(range(len(names))):
        mark, text = hunk.lines[index][:1], hunk.lines[index][1:].lstrip()
        sides = [mark] if mark in below else list(below)
        if DEFINITION.match(text):
            below |= dict.fromkeys(sides, names[index])
        elif text.startswith("@") or (text.startswith("#") and mark in below):
            names[index] = below[sides[-1]] or names[index]
        elif text:
            below |= dict.fromkeys(sides, "")


def _begins(line: str, name: str) -> bool:
    leaf = name.rpartition(".")[2]
    return line[1:].lstrip().removeprefix("async ").startswith((f"def {leaf}(", f"class {leaf}(", f"class {leaf}:"))


def _read_side(hunk: Hunk, mark: str, names: list[str], places: list[Place], found: dict[str, Segment]) -> None:
    indices = [index for index, line in enumerate(hunk.lines) if line[:1] in (" ", mark, "")]
    fragment = fragments.read(tuple(hunk.lines[index][1:] for index in indices))
    touched = [hunk.lines[index][:1] == mark for index in indices]
    covered: set[int] = set()

    def side_of(number: int) -> Side:
        segment = found.setdefault(names[indices[number]], Segment(hunk))
        return segment.old if mark == "-" else segment.new

    above, last = -1, Side()
    for one in fragment.statements:
        rows = range(one.first, one.last + 1)
        reached = [row for row in range(above + 1, one.last + 1) if row >= one.first or row in fragment.heads]
        changed = any(touched[row] and fragment.code[row].strip() for row in reached)
        covered.update(row for row in reached if row not in fragment.hidden)
        above = one.last
        side, at = side_of(one.last), places[indices[one.last]]
        if isinstance(one.node, Function) and one.node.name == at.function and one.depth * 4 == at.indent:
            covered.update(rows)
            if changed and not (one.node.decorator_list and touched[one.first]):
                side.signature, side.defaults = parameters(one.node), _defaults(one.node)
            elif changed:
                side.unread += [fragment.code[row] for row in rows if touched[row]]
            continue
        if one is fragment.statements[0] and isinstance(one.node, Function) and not one.node.decorator_list:
            fragment.cut.update(rows)  # what decorates it may stand above
            covered.difference_update(rows)
            continue
        side.split = side.split or bool(side.statements and side is not last)
        last = side
        side.statements.append(one)
        side.changed.append(changed)
    for name, row in fragment.parameters.items():
        if touched[row]:
            side_of(row).parameters[name] = fragment.code[row].strip()
            covered.add(row)
    for row, is_touched in enumerate(touched):
        if is_touched and hunk.lines[indices[row]][1:].strip():
            side_of(row)  # a comment changes a definition too
            found[names[indices[row]]].lines.append(hunk.numbers[indices[row]])
            if row not in covered and row not in fragment.texts and fragment.code[row].strip():
                side_of(row).unread.append(fragment.code[row].rstrip())


def _defaults(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, str]:
    spec = function.args
    positional = [*spec.posonlyargs, *spec.args]
    given = dict(zip(reversed(positional), reversed(spec.defaults), strict=False))
    given |= {one: value for one, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value is not None}
    every = [*positional, *spec.kwonlyargs]
    return {one.arg: ast.unparse(one) + (ast.unparse(given[one]) if one in given else "") for one in every}


def _beyond(some: list[Statement], others: list[Statement]) -> list[Statement]:
    left = Counter(one.digest for one in others)
    found = []
    for one in some:
        if left[one.digest]:
            left[one.digest] -= 1
        else:
            found.append(one)
    return found


def _whole(hunk: Hunk, name: str, names: list[str], begin: int) -> ast.stmt | None:
    """The definition that a hunk adds; None where its end is out of sight."""
    while begin and hunk.lines[begin - 1][:1] == "+" and hunk.lines[begin - 1][1:].lstrip().startswith("@"):
        begin -= 1
    rows = []
    for index in range(begin, len(hunk.lines)):
        line = hunk.lines[index]
        if line[:1] != "-" and line[1:].strip():
            if names[index] != name:
                break
            rows.append(index)
    else:
        if hunk.lines[-1][:1] != "+":
            return None  # it goes on below
    try:
        body = ast.parse(textwrap.dedent("\n".join(hunk.lines[index][1:] for index in rows))).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    leaf = name.rpartition(".")[2]
    return body[0] if len(body) == 1 and getattr(body[0], "name", "") == leaf else None
