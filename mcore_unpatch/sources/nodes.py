"""Walking over syntax trees, as `ast.walk` and `ast.iter_child_nodes` do, in less than half the time.

Contexts (`Load`) and operators are left out: who wants one asks the node that has it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

_PLAIN = ["attr", "arg", "asname", "conversion", "ctx", "id", "is_async", "kind", "level", "module", "op", "ops"]


@cache
def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    """The fields of a kind of node that may hold nodes."""
    return () if kind is ast.Constant else tuple(field for field in kind._fields if field not in _PLAIN)


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes right below a node, in order."""
    below: list[ast.AST] = []
    for field in _fields(type(node)):
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
        nodes += children(node)
        yield node


def first_line(statement: ast.stmt) -> int:
    """Where a statement begins, with its decorators."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return decorators[0].lineno if decorators else statement.lineno
