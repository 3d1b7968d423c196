"""Statements that may keep what stands behind them from being reached."""

from __future__ import annotations

import ast

from mcore_unpatch.megatron.roots import within
from mcore_unpatch.scanner.sources.scopes import path_text

LEAVES = {"sys.exit", "exit", "quit", "os._exit", "pytest.skip"}
_EXITS = ast.Return | ast.Raise | ast.Continue | ast.Break | ast.Assert


def may_leave(statement: ast.stmt) -> bool:
    """Whether a statement returns, raises or leaves the loop, always or in one of its branches."""
    match statement:
        case ast.Expr(value=ast.Call(func=func)):
            return path_text(func) in LEAVES
        case ast.If(body=body, orelse=orelse):
            return any(map(may_leave, (*body, *orelse)))
        case ast.With(body=body):
            return any(map(may_leave, body))
        case ast.Try(body=body, handlers=handlers, orelse=orelse):
            caught = [statement for handler in handlers for statement in handler.body]
            return any(map(may_leave, (*body, *caught, *orelse)))
    return isinstance(statement, _EXITS)


def imported(statement: ast.stmt) -> list[str]:
    """The names of Megatron's that a statement imports: it raises where they are not there."""
    found: list[str] = []
    if isinstance(statement, ast.Import):
        found = [alias.name for alias in statement.names]
    elif isinstance(statement, ast.ImportFrom) and not statement.level and within(f"{statement.module}."):
        found = [f"{statement.module}.{alias.name}".removesuffix(".*") for alias in statement.names]
    return [name for name in found if within(name)]


def leaves_by_choice(statement: ast.stmt) -> bool:
    """The same, where that is no error: an exception and an assertion end more than what stands behind them."""
    match statement:
        case ast.Assert() | ast.Raise():
            return False
        case ast.If(body=body, orelse=orelse) | ast.Try(body=body, orelse=orelse):
            return any(map(leaves_by_choice, (*body, *orelse)))
        case ast.With(body=body):
            return any(map(leaves_by_choice, body))
    return may_leave(statement)
