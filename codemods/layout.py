"""How wide a file is and by how much it indents, and code laid out in rows where one line would be too long."""

from __future__ import annotations

import ast
import io
import tokenize

from mcore_unpatch.editing.source import Source


def step_of(source: Source) -> str:
    """By how much a file indents."""
    functions = source.every(ast.FunctionDef)
    steps = (source.indentation(one.body[0]).removeprefix(source.indentation(one)) for one in functions)
    return next(filter(None, steps), "    ")


def in_rows(source: Source, indent: str, listed: str) -> str:
    """What stands in brackets, on a line of its own; in a row each where that would be too long as well."""
    inner = indent + step_of(source)
    if len(inner) + len(listed) <= source.width:
        return f"\n{inner}{listed}\n{indent}"
    return "\n" + "".join(f"{inner}{part},\n" for part in _parts(listed)) + indent


def _parts(listed: str) -> list[str]:
    """The parts of a list that commas set apart."""
    depth, heads, cuts = 0, 0, [-1]  # heads: of lambdas, whose parameters have commas of their own
    for token in tokenize.generate_tokens(io.StringIO(f"({listed})").readline):
        depth += (token.string in {"(", "[", "{"}) - (token.string in {")", "]", "}"})
        if depth == 1:
            heads = max(0, heads + (token.string == "lambda") - (token.string == ":"))
        if token.string == "," and depth == 1 and not heads:
            cuts.append(token.start[1] - 1)
    ends = [*cuts[1:], len(listed)]
    parts = (listed[start + 1 : end].strip() for start, end in zip(cuts, ends, strict=True))
    return [part for part in parts if part]
