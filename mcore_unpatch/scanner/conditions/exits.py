"""Statements that may keep what stands behind them from being reached."""

from __future__ import annotations

import ast

from mcore_unpatch.megatron.versions import within
from mcore_unpatch.scanner.sources.scopes import path_text

LEAVES = {"sys.exit", "exit", "quit", "os._exit", "pytest.skip"}
_EXITS = ast.Return | ast.Continue | ast.Break


def may_leave(statement: ast.stmt, by_choice: bool = False) -> bool:
    """Whether a statement returns, raises or leaves the loop, always or in one of its branches.

    `by_choice`: where that is no error. An exception and an assertion end more than what stands behind them.
    """
    body: list[ast.stmt] = []
    match statement:
        case ast.Expr(value=ast.Call(func=func)):
            return path_text(func) in LEAVES
        case ast.If() | ast.With():
            body = [*statement.body, *getattr(statement, "orelse", ())]
        case ast.Try(handlers=handlers):
            caught = [] if by_choice else [inner for handler in handlers for inner in handler.body]
            body = [*statement.body, *caught, *statement.orelse]
        case ast.Raise() | ast.Assert():
            return not by_choice
    return isinstance(statement, _EXITS) or any(may_leave(inner, by_choice) for inner in body)


def imported(statement: ast.stmt) -> list[str]:
    """The names of Megatron's that a statement imports: it raises where they are not there."""
    found: list[str] = []
    if isinstance(statement, ast.Import):
        found = [alias.name for alias in statement.names]
    elif isinstance(statement, ast.ImportFrom) and not statement.level and within(f"{statement.module}."):
        found = [f"{statement.module}.{alias.name}".removesuffix(".*") for alias in statement.names]
    return [name for name in found if within(name)]
