"""Code that stands on Megatron's hook already: it gives a model an `output_processor`, or asks whether it takes one."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from mcore_unpatch.codemods.units import Unit, reached
from mcore_unpatch.megatron.facts import HOOK_ARGUMENTS
from mcore_unpatch.scanner.sources.nodes import walk

PROCESSOR = HOOK_ARGUMENTS[0]


def processors(tree: ast.AST) -> Iterator[ast.expr]:
    """What code gives as `output_processor`, by keyword or in a mapping; what is only passed on is not its own."""
    for node in walk(tree):
        if isinstance(node, ast.Call):
            values = [keyword.value for keyword in node.keywords if keyword.arg == PROCESSOR]
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            values = [value for key, value in pairs if key is not None and _says(key)]
        elif isinstance(node, ast.Assign):
            named = any(isinstance(target, ast.Subscript) and _says(target.slice) for target in node.targets)
            values = [node.value] if named else []
        else:
            continue
        yield from (value for value in values if not _is_none(value) and not _is_passed_on(value))


def is_fallback(line: int, units: Sequence[Unit]) -> bool:
    """Whether the code at a line, or what it calls in its file, asks whether a model takes the hook."""
    here = [unit for unit in units if unit.node.lineno <= line <= (unit.node.end_lineno or 0)]
    return any(_says(node) for unit in reached(here, units) for node in walk(unit.node))


def _says(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == PROCESSOR


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_passed_on(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == PROCESSOR
