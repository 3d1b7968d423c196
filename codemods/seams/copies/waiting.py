"""Statements of a copy's own before the decoder that may as well run behind it: they are kept, in the processor."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from mcore_unpatch.codemods.syntax import dotted, names_in

_LOGS = {"logger", "logging", "log", "warnings", "print"}
# Calls that change nothing and that nothing changes.
_PLAIN = {
    "getattr",
    "hasattr",
    "isinstance",
    "len",
    "bool",
    "int",
    "float",
    "max",
    "min",
    "size",
    "dim",
    "numel",
    "get",
}


def may_wait(statement: ast.stmt, others: Sequence[ast.stmt]) -> bool:
    """Whether a statement may run behind the decoder: it says or checks something, or is for the copy's end alone.

    `others` is what Megatron does then before it: these neither use what the statement sets, nor set what it uses.
    """
    if not _does_nothing_else(statement):
        return False
    set_here, set_there = _stored(statement), set().union(*map(_stored, others))
    used_there = set().union(*map(names_in, others))
    return not set_here & used_there and not names_in(statement) & set_there


def _does_nothing_else(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Raise):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or _is_log(node.value)
    if isinstance(node, ast.If):
        inside = all(isinstance(one, ast.Raise) or _does_nothing_else(one) for one in (*node.body, *node.orelse))
        return inside and _is_plain(node.test)
    if isinstance(node, ast.Assert):
        return _is_plain(node.test)
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        named = [one for target in targets for one in (target.elts if isinstance(target, ast.Tuple) else [target])]
        return all(isinstance(one, ast.Name) for one in named) and node.value is not None and _is_plain(node.value)
    return False


def _is_log(node: ast.expr) -> bool:
    """`logger.info(...)`, `print(...)`."""
    return isinstance(node, ast.Call) and dotted(node.func).partition(".")[0].strip("_").lower() in _LOGS


def _is_plain(node: ast.expr) -> bool:
    """An expression that calls nothing unknown."""
    impure = ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr | ast.Lambda
    calls = (one for one in ast.walk(node) if isinstance(one, ast.Call))
    known = all(getattr(call.func, "attr", getattr(call.func, "id", "")) in _PLAIN for call in calls)
    return known and not any(isinstance(one, impure) for one in ast.walk(node))


def _stored(node: ast.stmt) -> set[str]:
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
    imported = (one for one in ast.walk(node) if isinstance(one, ast.alias))
    return names | {(one.asname or one.name).partition(".")[0] for one in imported}
