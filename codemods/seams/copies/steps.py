"""What a statement of a forward does: which parts of the model it calls, and with what."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

# The parts of the model whose calls are compared argument by argument.
CALLED = ("decoder", "mtp", "embedding", "_preprocess")
_LAST_TOKEN = "materialize_only_last_token_logits"


def part_called(node: ast.AST, model: str = "self") -> str:
    """`decoder` of the call `self.decoder(...)`; empty for everything else."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is(node.func.value, model):
        return node.func.attr
    return ""


def calls_of(statement: ast.AST, part: str, model: str = "self") -> list[ast.Call]:
    """The calls of a part of the model in a statement."""
    found = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
    return [node for node in found if part_called(node, model) == part]


def of_model(statement: ast.AST, model: str = "self") -> Iterator[str]:
    """The parts of the model that a statement calls."""
    for node in ast.walk(statement):
        if name := part_called(node, model):
            yield name


def keywords_of(body: Sequence[ast.stmt], part: str) -> set[str]:
    """The keywords that a part of the model is called with."""
    calls = [call for statement in body for call in calls_of(statement, part)]
    return {keyword.arg for call in calls for keyword in call.keywords if keyword.arg}


def hook_at(body: Sequence[ast.stmt]) -> int:
    """Where the hook runs, or would have run in a release before it: behind MTP, before the logits."""
    for at, statement in enumerate(body):
        names = {node.attr for node in ast.walk(statement) if isinstance(node, ast.Attribute)}
        hook = isinstance(statement, ast.If) and "output_processor" in ast.unparse(statement.test)
        logits = isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]).startswith("(logits")
        if hook or logits or _LAST_TOKEN in names:
            return at
    return 0


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
