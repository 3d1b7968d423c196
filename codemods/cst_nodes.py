"""Changes below a statement, on nodes of libcst: expressions, arguments, parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import libcst as cst

from mcore_unpatch.codemods.changes import AddParameters, Argument, Asked, Header, Make, Replace


def changed(asked: Asked, node: Any) -> Any:
    """A node with one change made."""
    change = asked.change
    if isinstance(change, Make):
        return change.make(node)
    if isinstance(change, Replace):
        return cst.parse_expression(change.text).with_changes(lpar=node.lpar, rpar=node.rpar)
    if isinstance(change, Argument):
        return node.with_changes(args=_with_argument(node.args, change.text))
    if isinstance(change, Header):
        new = _function(change.parameters)
        made = node.with_changes(params=new.params, whitespace_before_params=new.whitespace_before_params)
        return made.with_changes(returns=None)
    assert isinstance(change, AddParameters)
    return node.with_changes(params=_with_parameters(node.params, change.texts))


def _function(parameters: str) -> cst.FunctionDef:
    function = cst.parse_statement(f"def f({parameters}): pass")
    assert isinstance(function, cst.FunctionDef)
    return function


def _with_argument(args: Sequence[cst.Arg], text: str) -> list[cst.Arg]:
    """One argument more, and the comma and white space behind the last go behind it."""
    *others, last = args
    call: Any = cst.parse_expression(f"f({text})")
    new = call.args[0].with_changes(comma=last.comma, whitespace_after_arg=last.whitespace_after_arg)
    comma = _between(others[-1].comma if others else None)
    separated = last.with_changes(comma=comma, whitespace_after_arg=cst.SimpleWhitespace(""))
    return [*others, separated, new]


def _between(before: Any) -> cst.Comma:
    """The comma behind one that was the last: with a new line, if the one before it has that."""
    space = getattr(before, "whitespace_after", None)
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    return cst.Comma(whitespace_after=replace(space, first_line=cst.TrailingWhitespace(), empty_lines=[]))


def _with_parameters(params: cst.Parameters, texts: Sequence[str]) -> cst.Parameters:
    """Parameters behind the others; keyword-only ones where a `*` stands before them."""
    given = _function(", ".join(texts)).params.params
    names = "kwonly_params" if params.kwonly_params or isinstance(params.star_arg, cst.Param) else "params"
    known = list(getattr(params, names))
    if not known:  # behind `*args` alone
        assert isinstance(params.star_arg, cst.Param)
        star, *new = _laid_out([params.star_arg, *given])
        return params.with_changes(star_arg=star, kwonly_params=new)
    before = getattr(params.star_arg, "comma", None)
    return params.with_changes(**{names: _laid_out([*known, *given], len(known), before)})


def _laid_out(params: Sequence[cst.Param], known: int = 1, before: Any = None) -> list[cst.Param]:
    """The new ones stand each on a line of its own if the last known one does; `before` stands before the first."""
    last = params[known - 1]
    between = _between(params[known - 2].comma if known > 1 else before)
    nodes = [
        param.with_changes(comma=between, whitespace_after_param=cst.SimpleWhitespace(""))
        for param in params[known - 1 : -1]
    ]
    end = params[-1].with_changes(comma=last.comma, whitespace_after_param=last.whitespace_after_param)
    return [*params[: known - 1], *nodes, end]
