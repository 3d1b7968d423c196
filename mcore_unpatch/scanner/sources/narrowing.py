"""What a condition says of the class of an object: `isinstance`, or the name of its class."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def checks(test: ast.expr, positive: bool) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(object, class) pairs that hold when `test` is true (or, not `positive`, when it is false)."""
    match test:
        case ast.UnaryOp(op=ast.Not()):
            yield from checks(test.operand, not positive)
        case ast.BoolOp() if isinstance(test.op, ast.And) is positive:
            for value in test.values:
                yield from checks(value, positive)
        case ast.Call(func=ast.Name(id="isinstance"), args=[subject, cls]) if positive:
            yield subject, cls
        case ast.Compare(ops=[ast.Eq()], left=left, comparators=[right]) if positive:
            for name, other in ((left, right), (right, left)):
                if (known := _classified(name)) is not None:
                    yield known, other
        case ast.Compare(ops=[ast.In()], left=left, comparators=[names]) if positive:
            if (known := _classified(left)) is not None:
                yield known, names
        case ast.Compare(ops=[ast.NotEq()]) if not positive:
            yield from checks(ast.Compare(test.left, [ast.Eq()], test.comparators), True)


def _classified(node: ast.expr) -> ast.expr | None:
    """`x` in `type(x).__name__` and `x.__class__.__name__`."""
    match node:
        case ast.Attribute(attr="__name__", value=ast.Call(func=ast.Name(id="type"), args=[subject])):
            return subject
        case ast.Attribute(attr="__name__", value=ast.Attribute(attr="__class__", value=subject)):
            return subject
    return None
