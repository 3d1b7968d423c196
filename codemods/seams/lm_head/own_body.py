"""A passthrough that does more than hand its input through: its own body as the processor."""

from __future__ import annotations

import ast

from mcore_unpatch.codemods.changes import Change, Header, Rewrite, above
from mcore_unpatch.codemods.seams.lm_head.passthrough import body_of, known_parameters, names_in, returns
from mcore_unpatch.codemods.seams.patch import Patch
from mcore_unpatch.codemods.source import Source


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
    changes: list[Change] = [Header(function, f"*, {taken}, **_")]
    if lines := [f"{old} = {new}" for old, new in pairs if old != new]:
        changes.append(above(source, body[0], "\n".join(lines)))
    return [*changes, *(_returned(source, statement) for statement in returns(function))]


def _returned(source: Source, statement: ast.Return) -> Rewrite:
    assert isinstance(statement.value, ast.Tuple)
    value = statement.value.elts[0]
    text = source.text_of(source.span(value))
    simple = isinstance(value, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    shown = (text if simple else f"({text})").removesuffix(".contiguous()")
    return Rewrite(statement, f"return {shown}.transpose(0, 1).contiguous()")
