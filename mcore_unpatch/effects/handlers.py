"""Who expects an exception: a `try`, a `suppress` or a `raises` around a node, within the same function."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.code.syntax import FUNCTIONS, ancestors, is_try, last_name

_SAME = {
    "ImportError": {"ImportError", "ModuleNotFoundError"},
    "ModuleNotFoundError": {"ImportError", "ModuleNotFoundError"},
    "NameError": {"NameError", "UnboundLocalError"},
    "KeyError": {"KeyError", "LookupError"},
}
_ALWAYS = {"Exception", "BaseException", ""}
_EXPECTS = ("suppress", "raises", "assertRaises", "assertRaisesRegex")


def is_caught(node: ast.AST, exception: str) -> bool:
    """Whether somebody handles an exception, and does not raise it again."""
    found = handler_of(node, exception)
    return found is not None and not (isinstance(found, ast.ExceptHandler) and isinstance(found.body[-1], ast.Raise))


def handler_of(node: ast.AST, exception: str) -> ast.ExceptHandler | ast.With | None:
    """What gets an exception that a node raises; it may hand it on."""
    wanted = _SAME.get(exception, {exception}) | _ALWAYS
    for parent, child in ancestors(node):
        if isinstance(parent, (*FUNCTIONS, ast.ClassDef)):
            return None
        if isinstance(parent, ast.With):
            calls = (item.context_expr for item in parent.items if isinstance(item.context_expr, ast.Call))
            quiet = [call for call in calls if last_name(call.func) in _EXPECTS]
            if any(wanted.intersection(_names(one)) for call in quiet for one in call.args):
                return parent
        if is_try(parent) and any(child is one for one in parent.body):
            for handler in parent.handlers:
                if wanted.intersection(_names(handler.type)):
                    return handler  # type: ignore[no-any-return]
    return None


def _names(types: ast.expr | None) -> Iterator[str]:
    """The exceptions that are named, without their modules; an empty name where there is none."""
    for caught in types.elts if isinstance(types, ast.Tuple) else [types]:
        yield "" if caught is None else last_name(caught) or "?"
