"""What keeps the layer's own `forward` and puts it back: with the hook, the handle is kept and removed instead."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mcore_unpatch.codemods.changes import Change
from mcore_unpatch.codemods.seams.lm_head.passthrough import names_in, parameters
from mcore_unpatch.codemods.seams.patch import Patch
from mcore_unpatch.codemods.source import Source, Span, last_line, suites

HANDLE = "handle"
_Place = ast.Name | ast.Attribute | ast.Subscript


@dataclass(frozen=True)
class Undoing:
    """Where the handle goes (empty: nobody takes the patch back), the changes to the rest, and what they take away."""

    handle: str
    changes: tuple[Change, ...]
    gone: tuple[ast.AST, ...]


def plan_undoing(patch: Patch, gone: Sequence[ast.AST]) -> Undoing | str:
    """The plan, or why there is none; `gone` is what else is taken away."""
    assert patch.around is not None
    statements = {
        node.lineno: node for node in ast.walk(patch.source.tree) if isinstance(node, ast.Assign | ast.Delete)
    }
    kept: list[ast.stmt] = []
    restores: list[ast.stmt] = []
    for related in patch.finding.related:
        if related.role not in {"backup", "restore"}:
            continue
        statement = statements.get(related.line)
        if statement is None or (related.role == "backup" and _place(statement) is None):
            return f"the {related.role} on line {related.line} is no plain assignment"
        (kept if related.role == "backup" else restores).append(statement)
    taken = [*gone, patch.statement, *kept, *restores]
    inside = {id(node) for node in ast.walk(patch.around)}
    if all(id(statement) in inside for statement in restores):
        return _here(patch, kept, restores, taken)
    return _elsewhere(patch, kept, restores, taken)


def _here(patch: Patch, kept: list[ast.stmt], restores: list[ast.stmt], taken: list[ast.AST]) -> Undoing | str:
    """Undone in the same function, or never."""
    assert patch.around is not None
    if restores and HANDLE in {*names_in(patch.around), *parameters(patch.around)}:
        return f"the name `{HANDLE}` is taken"
    unused = [
        statement
        for statement in kept
        if not any(_mentions(_place(statement), _scope(statement, patch), taken)) and _may_go(statement, patch.source)
    ]
    changes = [Change(whole_lines(patch.source, statement), "") for statement in unused]
    undone = _whole_attempts(restores, patch.around)
    changes += [Change(with_pragma(patch.source, statement), f"{HANDLE}.remove()") for statement in undone]
    return Undoing(HANDLE if restores else "", tuple(changes), (*unused, *restores))


def _elsewhere(patch: Patch, kept: list[ast.stmt], restores: list[ast.stmt], taken: list[ast.AST]) -> Undoing | str:
    """Undone in another function: the handle takes the place that both functions know the original by."""
    line = restores[0].lineno
    place = _place(kept[0]) if len(kept) == 1 else None
    if not isinstance(place, ast.Attribute) or not _may_go(kept[0], patch.source):
        return f"it is undone in another function, on line {line}"
    old = place.attr
    new = f"{'_' if old.startswith('_') else ''}hook_{HANDLE}"
    others = list(_mentions(place, patch.source.tree, taken))
    if any(isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) for node in others):
        return f"`{old}`, by which it is undone on line {line}, is used for more"
    values = [statement.value for statement in restores if isinstance(statement, ast.Assign)]
    if len(values) != len(restores) or not all(isinstance(v, ast.Attribute) and v.attr == old for v in values):
        return f"it is undone in another function, on line {line}"
    if any(isinstance(node, ast.Attribute) and node.attr == new for node in ast.walk(patch.source.tree)):
        return f"the name `{new}` is taken"
    source = patch.source
    changes = [Change(whole_lines(source, kept[0]), "")]
    changes += [Change(_name_span(node, old, source), new) for node in others]
    for statement, value in zip(restores, values, strict=True):
        assert isinstance(value, ast.Attribute)
        changes.append(Change(with_pragma(source, statement), f"{patch.text(value.value)}.{new}.remove()"))
    return Undoing(f"{patch.text(place.value)}.{new}", tuple(changes), (kept[0], *restores))


def _place(statement: ast.stmt) -> _Place | None:
    """Where an assignment keeps the original."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    return target if isinstance(target, _Place) else None


def _mentions(place: _Place | None, tree: ast.AST, taken: Sequence[ast.AST]) -> Iterator[ast.expr]:
    """Where a place is mentioned by code that stays; of an attribute, its name in any object or text counts."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if any(node is one for one in taken):
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(place, ast.Attribute):
            attribute = isinstance(node, ast.Attribute) and node.attr == place.attr
            if attribute or (isinstance(node, ast.Constant) and node.value == place.attr):
                assert isinstance(node, ast.expr)
                yield node
        elif place is not None and isinstance(node, type(place)) and ast.unparse(node) == ast.unparse(place):
            yield node


def _scope(statement: ast.stmt, patch: Patch) -> ast.AST:
    """Where what an assignment keeps can be asked for: a local name in its function alone."""
    place, around = _place(statement), patch.around
    assert around is not None
    shared = {name for node in ast.walk(around) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    return around if isinstance(place, ast.Name) and place.id not in shared else patch.source.tree


def _name_span(node: ast.expr, name: str, source: Source) -> Span:
    """Where a name is written, at the end of an attribute or within quotes."""
    end = source.span(node).end - isinstance(node, ast.Constant)
    return Span(end - len(name), end)


def _whole_attempts(restores: list[ast.stmt], around: ast.AST) -> list[ast.stmt]:
    """The restores; `try: del layer.forward` with another restore in its handlers counts as one."""
    found: list[ast.stmt] = list(restores)
    for node in ast.walk(around):
        if isinstance(node, ast.Try) and not node.orelse and not node.finalbody:
            inside = [*node.body, *(statement for handler in node.handlers for statement in handler.body)]
            if len(inside) > 1 and all(any(one is statement for statement in restores) for one in inside):
                found = [one for one in found if one not in inside] + [node]
    return found


def _may_go(statement: ast.stmt, source: Source) -> bool:
    """Whether something is left of the block when a statement goes."""
    return source.owns_lines(statement) and any(
        len(suite) > 1 and any(one is statement for one in suite) for suite in suites(source.tree)
    )


def whole_lines(source: Source, statement: ast.stmt) -> Span:
    """The lines of a statement and of the comment above it."""
    return source.line_span(source.first_with_comments(statement), last_line(statement))


def with_pragma(source: Source, statement: ast.stmt) -> Span:
    """A statement, and the comment behind it that lets a type checker overlook the assignment."""
    span, last = source.span(statement), last_line(statement)
    behind = source.data[span.end : source.line_span(last, last).end].rstrip(b"\r\n")
    return Span(span.start, span.end + len(behind)) if behind.lstrip().startswith(b"# type:") else span
