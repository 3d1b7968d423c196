"""What keeps the layer's own `forward` and puts it back: with the hook, the handle is kept and removed instead.

Only where it is certain that the handle is set whenever it is removed, and that nobody else looks at the original.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mcore_unpatch.codemods.changes import Change, Replace, Rewrite
from mcore_unpatch.codemods.seams.lm_head.model import owner_of
from mcore_unpatch.codemods.seams.patch import Patch
from mcore_unpatch.codemods.source import Function
from mcore_unpatch.codemods.syntax import identifiers, is_one_of, is_value, shared_names, walk_without

HANDLE = "handle"
FORWARD = "forward"
_Place = ast.Name | ast.Attribute
_BY_NAME = {"hasattr", "getattr", "setattr", "delattr"}


@dataclass(frozen=True)
class Undoing:
    """Where the handle goes (empty: nobody takes the patch back), and what becomes of the rest."""

    handle: str = ""
    changes: tuple[Change, ...] = ()
    removed: tuple[ast.stmt, ...] = ()  # statements that go
    replaced: tuple[ast.stmt, ...] = ()  # statements that become something else
    lift: ast.Try | None = None  # the patch is the first thing in this `try`: the hook comes before it


def plan_undoing(patch: Patch, gone: Sequence[ast.AST], wrapping: Sequence[Function]) -> Undoing | str:
    """The plan, or why there is none. `gone` is what else goes, `wrapping` are the functions that patch a head."""
    planner = _Planner(patch, gone)
    return planner.read(wrapping) or planner.look_around() or planner.plan()


class _Planner:
    def __init__(self, patch: Patch, gone: Sequence[ast.AST]) -> None:
        assert patch.around is not None
        self.patch, self.source = patch, patch.source
        self.function: Function = patch.around
        self.gone = [*gone, patch.statement]
        self.patched, self.method = ast.unparse(patch.target), patch.target.attr
        self.kept: ast.Assign | None = None
        self.here: list[ast.stmt] = []
        self.elsewhere: list[ast.Assign] = []

    def read(self, wrapping: Sequence[Function]) -> str:
        """Find the statements that keep the original and put it back; why they are not understood."""
        lines = {role: [one.line for one in self.patch.finding.related if one.role == role] for role in _ROLES}
        for line in lines["backup"]:
            backups = [one for one in self._at(line) if isinstance(one, ast.Assign) and self._keeps(one)]
            if not backups or self.kept is not None:
                return f"line {line} saves the original in an unsupported way"
            self.kept = backups[0]
        for line in lines["restore"]:
            because = self._read_restore(line, wrapping)
            if because:
                return because
        for statement in (*self.here, *self.elsewhere, *([self.kept] if self.kept else [])):
            if not self.source.owns_lines(statement):
                return f"line {statement.lineno} holds more than one statement"
        return ""

    def _at(self, line: int) -> list[ast.stmt]:
        return [statement for statement in self.source.every(ast.stmt) if statement.lineno == line]

    def _read_restore(self, line: int, wrapping: Sequence[Function]) -> str:
        for statement in self._at(line):
            targets = statement.targets if isinstance(statement, ast.Assign | ast.Delete) else []
            if not any(isinstance(target, ast.Attribute) and target.attr == self.method for target in targets):
                continue
            inside = self.source.function_of(statement)
            mine = len(targets) == 1 and ast.unparse(targets[0]) == self.patched
            if inside is self.function:
                if mine:
                    self.here.append(statement)
                elif len(targets) > 1 or any(self._is_the_layers(target) for target in targets):
                    return f"line {line} may undo it, under another name for the layer"
            elif self._is_restored_by_attribute(statement):
                assert isinstance(statement, ast.Assign)
                self.elsewhere.append(statement)
            elif inside is None or not is_one_of(inside, wrapping):
                return f"line {line} undoes it in another function"
        return ""

    def _is_the_layers(self, target: ast.expr) -> bool:
        base = target.value if isinstance(target, ast.Attribute) else target
        mine, other = (owner_of(layer, self.function) for layer in (self.patch.target.value, base))
        return isinstance(other, ast.expr) and isinstance(mine, ast.expr) and ast.unparse(mine) == ast.unparse(other)

    def _is_restored_by_attribute(self, statement: ast.stmt) -> bool:
        place = self.kept.targets[0] if self.kept else None
        value = statement.value if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        return isinstance(place, ast.Attribute) and isinstance(value, ast.Attribute) and value.attr == place.attr

    def _keeps(self, statement: ast.Assign) -> bool:
        known = len(statement.targets) == 1 and isinstance(statement.targets[0], _Place)
        return known and ast.unparse(statement.value) == self.patched

    def look_around(self) -> str:
        """Whether somebody else looks at the layer's forward or at the original, and would see something else now."""
        taken = [*self.gone, *self.here, *self.elsewhere, *([self.kept] if self.kept else [])]
        function = self.patch.function
        functions = {self.function, *(self.source.function_of(one) for one in self.elsewhere)}
        for node in walk_without(self.source.tree, taken):
            if isinstance(node, ast.Constant) and function is not None and node.value in {self.method, function.name}:
                return f"line {node.lineno} asks for `{node.value}` by name"
            if self.source.function_of(node) in functions:
                if isinstance(node, ast.Attribute) and ast.unparse(node) == self.patched:
                    return f"line {node.lineno} looks at `{self.patched}`"
                inner = isinstance(node, ast.Attribute) and node.attr == "__dict__" and not self._is_of_another(node)
                if inner or (isinstance(node, ast.Name) and node.id == "vars"):
                    return f"line {node.lineno} inspects the layer's attributes"  # type: ignore[attr-defined]
        for node in self._mentions():
            used = self.source.parents[node]
            if isinstance(node, ast.Constant) or (isinstance(used, ast.Call) and used.func is node):
                continue
            if not self.elsewhere:
                return f"line {node.lineno} passes the original on"
        place = self.kept.targets[0] if self.kept else None
        if isinstance(place, ast.Attribute) and place.attr != self.method:
            if self.patch.situation.files.named_elsewhere(place.attr, self.source.path):
                return f"`{place.attr}`, which holds the original, is used in other files"
        return ""

    def _is_of_another(self, node: ast.Attribute) -> bool:
        """`x.__dict__["name"]` of something that is not the method."""
        match self.source.parents[node]:
            case ast.Subscript(slice=ast.Constant(value=str(name))):
                return name != self.method
        return False

    def _mentions(self) -> Iterator[ast.expr]:
        """Where what keeps the original is mentioned by code that stays."""
        place = self.kept.targets[0] if self.kept else None
        taken = [*self.gone, *self.here, *self.elsewhere, *([self.kept] if self.kept else [])]
        if isinstance(place, ast.Name):
            scope = self.source.tree if place.id in shared_names(self.function) else self.function
            for node in walk_without(scope, taken):
                if isinstance(node, ast.Name) and node.id == place.id:
                    yield node
        elif isinstance(place, ast.Attribute):
            for node in walk_without(self.source.tree, taken):
                if (isinstance(node, ast.Attribute) and node.attr == place.attr) or (
                    isinstance(node, ast.Constant) and node.value == place.attr and self._names_attribute(node)
                ):
                    yield node

    def _names_attribute(self, node: ast.Constant) -> bool:
        """`hasattr(x, "kept")` and the like, and `__slots__`."""
        above = self.source.parents[node]
        if isinstance(above, ast.Tuple | ast.List):
            above = self.source.parents[above]
        if isinstance(above, ast.Assign):
            return ast.unparse(above.targets[0]) == "__slots__"
        return isinstance(above, ast.Call) and isinstance(above.func, ast.Name) and above.func.id in _BY_NAME

    def plan(self) -> Undoing | str:
        """The changes."""
        if self.elsewhere:
            return "it is undone in two functions" if self.here else self._plan_elsewhere()
        if self.here and HANDLE in identifiers(self.function):
            return f"the name `{HANDLE}` is taken"
        lift = self._lift()
        for restore in self.here:
            if not (lift or self._comes_after(restore)):
                return f"line {restore.lineno} may restore the original where nothing was patched"
        removed = [] if self.kept is None or any(self._mentions()) else [self.kept]
        undone = [*self._whole_attempts(), *(one for one in self.here if not self._in_attempt(one))]
        changes = [Rewrite(one, f"{HANDLE}.remove()", tell_checkers=False) for one in undone]
        return Undoing(HANDLE if self.here else "", tuple(changes), tuple(removed), tuple(self.here), lift)

    def _comes_after(self, restore: ast.stmt) -> bool:
        """Whether the hook is set whenever this is reached: a later neighbour, or within a `try` or `with` that is."""
        home = self.source.home[id(self.patch.statement)]
        node: ast.stmt = restore
        while self.source.home[id(node)] is not home:
            above = self.source.parents[node]
            above = self.source.parents[above] if isinstance(above, ast.ExceptHandler) else above
            if not isinstance(above, ast.Try | ast.With | ast.AsyncWith):
                return False
            node = above
        return node.lineno > self.patch.statement.lineno

    def _lift(self) -> ast.Try | None:
        """The `try` that begins with the patch and undoes it at its end."""
        above = self.source.parents[self.patch.statement]
        if isinstance(above, ast.Try) and above.body[0] is self.patch.statement and len(above.body) > 1 and self.here:
            return above if all(is_one_of(one, above.finalbody) for one in self.here) else None
        return None

    def _whole_attempts(self) -> list[ast.Try]:
        """`try: del layer.forward` with another restore in its handlers counts as one."""
        found = []
        for node in ast.walk(self.function):
            if isinstance(node, ast.Try) and not node.orelse and not node.finalbody:
                inside = [*node.body, *(statement for handler in node.handlers for statement in handler.body)]
                if len(inside) > 1 and all(is_one_of(one, self.here) for one in inside):
                    found.append(node)
        return found

    def _in_attempt(self, statement: ast.stmt) -> bool:
        return any(is_one_of(statement, ast.walk(attempt)) for attempt in self._whole_attempts())

    def _plan_elsewhere(self) -> Undoing | str:
        """Undone in another function: the handle takes the attribute that both functions know the original by."""
        assert self.kept is not None
        place = self.kept.targets[0]
        assert isinstance(place, ast.Attribute)
        old, line = place.attr, self.elsewhere[0].lineno
        new = f"{'_' if old.startswith('_') else ''}hook_{HANDLE}"
        bases = {ast.unparse(place.value)}
        values = [one.value for one in self.elsewhere if isinstance(one.value, ast.Attribute)]
        bases |= {ast.unparse(value.value) for value in values}
        others = list(self._mentions())
        for node in others:
            if isinstance(node, ast.Attribute) and not (ast.unparse(node.value) in bases and self._fits_a_handle(node)):
                return f"`{old}`, which line {line} restores from, has other uses"
        if any(isinstance(node, ast.Attribute) and node.attr == new for node in ast.walk(self.source.tree)):
            return f"the name `{new}` is taken"
        changes: list[Change] = [Replace(node, self._renamed(node, old, new)) for node in others]
        for statement, value in zip(self.elsewhere, values, strict=True):
            undone = f"{self.patch.text(value.value)}.{new}.remove()"
            changes.append(Rewrite(statement, undone, tell_checkers=False))
        handle = f"{self.patch.text(place.value)}.{new}"
        return Undoing(handle, tuple(changes), (self.kept,), tuple(self.elsewhere))

    def _renamed(self, node: ast.expr, old: str, new: str) -> str:
        """A node's text with another name, at the end of an attribute or within quotes."""
        head, _, tail = self.patch.text(node).rpartition(old)
        return f"{head}{new}{tail}"

    def _fits_a_handle(self, node: ast.Attribute) -> bool:
        """`del x.kept`, `x.kept = None`, `x.kept is None`: as true of a handle as of the original."""
        above = self.source.parents[node]
        if isinstance(above, ast.Compare):
            return is_value(above.comparators[0], None) and isinstance(above.ops[0], ast.Is | ast.IsNot)
        if isinstance(above, ast.Assign | ast.AnnAssign):
            return is_value(above.value, None)
        return isinstance(above, ast.Delete)


_ROLES = ("backup", "restore")
