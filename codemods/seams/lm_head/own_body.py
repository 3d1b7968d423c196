"""A passthrough that does more than hand its input through: its own body as the processor."""

from __future__ import annotations

import ast

from mcore_unpatch.codemods.changes import Change
from mcore_unpatch.codemods.seams.lm_head.passthrough import body_of, known_parameters, names_in, returns
from mcore_unpatch.codemods.seams.patch import Patch
from mcore_unpatch.codemods.source import Source, Span


def as_processor(patch: Patch) -> list[Change] | str:
    """The function with the hook's arguments, and its results in the layout of logits; or why that cannot be."""
    function, source = patch.function, patch.source
    assert function is not None
    known = known_parameters(function, patch.bound) or {}
    body = body_of(function)
    used = set().union(*(names_in(node) for node in body))
    if (set(known.values()) - known.keys()) & used:
        return f"`{function.name}` uses a name that the hook's arguments would hide"
    if body[0].lineno == function.lineno:
        return f"`{function.name}` is written on one line"
    pairs = [(old, new) for old, new in known.items() if old in used]
    taken = ", ".join(dict.fromkeys(["hidden_states", *(new for _, new in pairs)]))
    indent = source.indentation(body[0])
    lines = "".join(f"{indent}{old} = {new}\n" for old, new in pairs if old != new)
    first = source.line_span(source.first_with_comments(function.body[0]), function.body[0].lineno).start
    changes = [Change(Span(source.span(function).start, first), f"def {function.name}(*, {taken}, **_):\n")]
    if lines:
        at = source.line_span(source.first_with_comments(body[0]), body[0].lineno).start
        changes.append(Change(Span.at(at), lines))
    return [*changes, *(_returned(source, statement) for statement in returns(function))]


def _returned(source: Source, statement: ast.Return) -> Change:
    assert isinstance(statement.value, ast.Tuple)
    value = statement.value.elts[0]
    text = source.text_of(source.span(value))
    simple = isinstance(value, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    shown = (text if simple else f"({text})").removesuffix(".contiguous()")
    return Change(source.span(statement), f"return {shown}.transpose(0, 1).contiguous()")
