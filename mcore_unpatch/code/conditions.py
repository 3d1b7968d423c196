"""What decides whether a node is reached: branches, early exits, asserts, handlers, and imports above it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from mcore_unpatch.code.module import Binding, BindingKind
from mcore_unpatch.code.syntax import (
    COMPREHENSIONS,
    EXITS,
    LOOPS,
    NAMED_FUNCTIONS,
    ancestors,
    block_of,
    is_try,
    spelled,
)

_LEAVES = {"sys.exit", "exit", "quit", "os._exit", "pytest.skip"}
_NEAREST = 40  # statements above a node that are looked at, in each block around it


class Way(StrEnum):
    """How a condition decides."""

    TEST = "test"  # `node` is a test, which has to come out as `truth`
    PASSED = "passed"  # `node` is a statement above, which must not leave
    TRIED = "tried"  # the statements of `before` stand above in a `try`, and must not fail
    CAUGHT = "caught"  # `node` is a handler: what is tried has to fail


class Condition(NamedTuple):
    """One thing that has to hold for a node to be reached."""

    way: Way
    node: ast.AST
    truth: bool = True
    before: tuple[ast.stmt, ...] = ()


def conditions(node: ast.AST) -> Iterator[Condition]:
    """Everything that decides on the way to a node, the nearest first."""
    for parent, child in ancestors(node):
        yield from _within_expression(parent, child)
        if isinstance(parent, ast.If) and child is not parent.test:
            yield Condition(Way.TEST, parent.test, any(each is child for each in parent.body))
        elif isinstance(parent, ast.While) and any(each is child for each in parent.body):
            yield Condition(Way.TEST, parent.test, True)
        elif is_try(parent) and isinstance(child, ast.ExceptHandler):
            yield Condition(Way.CAUGHT, child)
        if not isinstance(child, ast.stmt):
            continue
        block = block_of(parent, child)
        above = block[: next((number for number, each in enumerate(block) if each is child), 0)]
        in_function = not isinstance(parent, ast.Module)
        for statement in reversed(above[-_NEAREST:]):
            if may_leave(statement) or (in_function and isinstance(statement, (ast.Import, ast.ImportFrom))):
                yield Condition(Way.PASSED, statement)
        if is_try(parent) and (block is parent.body or block is parent.orelse):
            before = above if block is parent.body else parent.body
            yield Condition(Way.TRIED, parent, before=tuple(before[-_NEAREST:]))
        if isinstance(child, NAMED_FUNCTIONS):
            yield from (Condition(Way.TEST, test, True) for test in _asked_by_decorators(child))


def _within_expression(parent: ast.AST, child: ast.AST) -> Iterator[Condition]:
    if isinstance(parent, ast.IfExp) and child is not parent.test:
        yield Condition(Way.TEST, parent.test, child is parent.body)
    elif isinstance(parent, ast.BoolOp):
        for value in parent.values:
            if value is child:
                break
            yield Condition(Way.TEST, value, isinstance(parent.op, ast.And))
    elif isinstance(parent, COMPREHENSIONS) and not isinstance(child, ast.comprehension):
        yield from (Condition(Way.TEST, test, True) for part in parent.generators for test in part.ifs)


def _asked_by_decorators(function: ast.AST) -> list[ast.expr]:
    """What a registry asks before it calls a function: `@register(condition=lambda context: ...)`."""
    calls = [one for one in getattr(function, "decorator_list", ()) if isinstance(one, ast.Call)]
    asked = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == "condition"]
    return [each.body for each in asked if isinstance(each, ast.Lambda)]


def may_leave(statement: ast.stmt) -> bool:
    """Whether a statement returns, raises or leaves the loop, always or in one of its branches."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call) and spelled(statement.value.func) in _LEAVES
    if isinstance(statement, (*EXITS, ast.Assert)):
        return True
    return any(may_leave(inner) for inner in _blocks(statement))


def _blocks(statement: ast.stmt) -> Iterable[ast.stmt]:
    if isinstance(statement, ast.If):
        return (*statement.body, *statement.orelse)
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return statement.body
    if isinstance(statement, (ast.Try, ast.TryStar)):
        return (*statement.body, *(each for one in statement.handlers for each in one.body), *statement.orelse)
    return ()


Tests = list[tuple[ast.expr, bool]]


def tests(node: ast.AST, of_statements: dict[ast.AST, Tests]) -> Iterator[tuple[ast.expr, bool]]:
    """(test, how it came out) for a node, taken apart at `and`, `or` and `not`; exits above it tell too.

    of_statements: what was found for whole statements, which is kept there.
    """
    statement: ast.AST = node
    for parent, child in ancestors(node):
        if isinstance(child, ast.stmt):
            break
        yield from _of_tests(_within_expression(parent, child))
        statement = parent
    if statement not in of_statements:
        of_statements[statement] = list(_of_tests(conditions(statement)))
    yield from of_statements[statement]


def _of_tests(found: Iterable[Condition]) -> Iterator[tuple[ast.expr, bool]]:
    for condition in found:
        if condition.way == Way.TEST:
            assert isinstance(condition.node, ast.expr)
            yield from _apart(condition.node, condition.truth)
        elif condition.way == Way.PASSED:
            statement = condition.node
            if isinstance(statement, ast.Assert):
                yield from _apart(statement.test, True)
            elif isinstance(statement, ast.If) and isinstance(statement.body[-1], EXITS):
                yield from _apart(statement.test, False)
            elif isinstance(statement, ast.If) and statement.orelse and isinstance(statement.orelse[-1], EXITS):
                yield from _apart(statement.test, True)


def _apart(test: ast.expr, truth: bool) -> Iterator[tuple[ast.expr, bool]]:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _apart(test.operand, not truth)
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) == truth:
        for value in test.values:
            yield from _apart(value, truth)
    else:
        yield test, truth


def _position(node: Any) -> tuple[int, int]:
    return (node.lineno, node.col_offset)


def reaching(bindings: list[Binding], node: ast.AST, here: bool) -> list[Binding]:
    """The bindings whose value a name may have at a node: back from it to the first that nothing goes around.

    here: they are in the node's own scope. From a function inside, any of them may be the last one.
    """
    if not here or not hasattr(node, "lineno") or len(bindings) == 1:
        return bindings
    place = _position(node)
    around = {id(parent): child for parent, child in ancestors(node)}  # and the child that leads to the node
    found: list[Binding] = []
    for binding in reversed(bindings):
        at = binding.node
        if binding.kind == BindingKind.PARAMETER:
            found.append(binding)
            break
        if _position(at) > place:
            continue
        if isinstance(at, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and id(at) in around:
            continue  # its own value
        parent = getattr(at, "_parent", None)
        branch = around.get(id(parent)) if parent is not None else None
        if branch is None or not isinstance(at, ast.stmt):
            found.append(binding)
            continue
        assert parent is not None
        if not any(each is branch for each in block_of(parent, at)) and not isinstance(parent, LOOPS):
            if isinstance(parent, ast.If) or isinstance(branch, ast.ExceptHandler):
                continue  # the other branch
            found.append(binding)
            continue
        found.append(binding)
        if not isinstance(at, (ast.For, ast.AsyncFor)) or id(at) in around:
            break  # nothing goes around it
    return found or bindings
