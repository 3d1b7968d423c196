"""A passthrough that does more than hand its input through: its own body as the processor."""

from __future__ import annotations

import ast

from mcore_unpatch.codemods.changes import Change
from mcore_unpatch.codemods.seams.lm_head.passthrough import known_parameters, returns
from mcore_unpatch.codemods.seams.patch import Function, Patch
from mcore_unpatch.codemods.source import Source, Span


def as_processor(patch: Patch) -> list[Change]:
    """The function with the hook's arguments, and its results in the layout of logits."""
    assert patch.function is not None
    head = _head(patch.source, patch.function, patch.bound)
    return [head, *(_returned(patch.source, statement) for statement in returns(patch.function))]


def _head(source: Source, function: Function, bound: bool) -> Change:
    """The processor's parameters, and the old names for those that the body uses."""
    given = known_parameters(function, bound) or []
    meanings = (["output_layer"] if bound else []) + ["hidden_states", "output_weight"]
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    pairs = [(old, new) for old, new in zip(given, meanings, strict=False) if old in used]
    taken = ", ".join(dict.fromkeys(["hidden_states", *(new for _, new in pairs)]))
    first = function.body[0]
    indent = source.indentation(first)
    lines = "".join(f"{indent}{old} = {new}\n" for old, new in pairs if old != new)
    start = source.span(function).start
    body = source.first_with_comments(first)
    return Change(Span(start, source.line_span(body, body).start), f"def {function.name}(*, {taken}, **_):\n{lines}")


def _returned(source: Source, statement: ast.Return) -> Change:
    assert isinstance(statement.value, ast.Tuple)
    value = statement.value.elts[0]
    text = source.text_of(source.span(value))
    simple = isinstance(value, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    shown = text if simple else f"({text})"
    return Change(source.span(statement), f"return {shown}.transpose(0, 1).contiguous()", statement)
