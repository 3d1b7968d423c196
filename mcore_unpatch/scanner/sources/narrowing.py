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
        case ast.Call(func=ast.Name(id="issubclass"), args=[subject, cls]) if positive:
            yield subject, ast.Subscript(ast.Name("type", ast.Load()), cls, ast.Load())
        case ast.Compare(ops=[ast.Eq() | ast.Is()], left=left, comparators=[right]) if positive:
            for name, other in ((left, right), (right, left)):
                if (known := _classified(name)) is not None:
                    yield known, other
        case ast.Compare(ops=[ast.In()], left=left, comparators=[names]) if positive:
            if (known := _classified(left)) is not None:
                yield known, names
        case ast.Compare(ops=[ast.NotEq() | ast.IsNot()]) if not positive:
            yield from checks(ast.Compare(test.left, [ast.Eq()], test.comparators), True)


def case_checks(subject: ast.expr, pattern: ast.pattern) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The same for `case Cls():` of a `match`."""
    match pattern:
        case ast.MatchClass(cls=cls):
            yield subject, cls
        case ast.MatchAs(pattern=ast.pattern() as inner):
            yield from case_checks(subject, inner)
        case ast.MatchOr(patterns=[first, *_]):
            yield from case_checks(subject, first)


def _classified(node: ast.expr) -> ast.expr | None:
    """`x` in `type(x)` and `x.__class__`, and in their `__name__`."""
    match node:
        case ast.Attribute(attr="__name__" | "__qualname__", value=inner):
            return _classified(inner)
        case ast.Call(func=ast.Name(id="type"), args=[subject]) | ast.Attribute(attr="__class__", value=subject):
            return subject
    return None
