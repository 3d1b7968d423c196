"""Walking over syntax trees, as `ast.walk` and `ast.iter_child_nodes` do, in less than half the time.

Contexts (`Load`) and operators are left out: who wants one asks the node that has it.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterator, Sequence

_PLAIN = ["attr", "arg", "asname", "conversion", "ctx", "id", "is_async", "kind", "level", "module", "op", "ops"]


class _Fields(dict[type[ast.AST], tuple[str, ...]]):
    """By kind of node: the fields that may hold nodes."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        self[kind] = () if kind is ast.Constant else tuple(field for field in kind._fields if field not in _PLAIN)
        return self[kind]


_FIELDS = _Fields()


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes right below a node, in order."""
    below: list[ast.AST] = []
    for field in _FIELDS[type(node)]:
        value = getattr(node, field, None)
        if type(value) is list:
            below += [item for item in value if isinstance(item, ast.AST)]
        elif isinstance(value, ast.AST):
            below.append(value)
    return below


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it, level by level."""
    nodes = [node]
    for node in nodes:
        for field in _FIELDS[type(node)]:  # not by `children`: a call for each node is half of the time
            value = getattr(node, field, None)
            if type(value) is list:
                nodes += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST):
                nodes.append(value)
        yield node


def calls_on(node: ast.AST, lines: Sequence[int]) -> Iterator[ast.Call]:
    """Calls below `node` that span one of the (sorted) lines; everything else is not walked."""
    return (part for part in calls_and_names_on(node, lines) if isinstance(part, ast.Call))


def calls_and_names_on(node: ast.AST, lines: Sequence[int]) -> Iterator[ast.Call | ast.comprehension | ast.NamedExpr]:
    """The same with what binds names: the loops of comprehensions, and `:=`."""
    if not lines:
        return
    stack = [node]
    while stack:
        current = stack.pop()
        start = getattr(current, "lineno", None)
        if start is not None:
            index = bisect_left(lines, start)
            if index == len(lines) or lines[index] > (current.end_lineno or start):  # type: ignore[attr-defined]
                continue
        if isinstance(current, ast.Call | ast.comprehension | ast.NamedExpr):
            yield current
        stack += children(current)


def first_line(statement: ast.stmt) -> int:
    """Where a statement begins, with its decorators."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return decorators[0].lineno if decorators else statement.lineno


def call_written(function: ast.AST, called: str) -> ast.Call | None:
    """The first call in a function of what is written so: `super().__init__`."""
    calls = (node for node in walk(function) if isinstance(node, ast.Call))
    return next((call for call in calls if ast.unparse(call.func) == called), None)
