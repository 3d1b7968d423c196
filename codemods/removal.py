"""What goes with a statement that goes: the comment above it, and blank lines around it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby

from mcore_unpatch.codemods.changes import Remove, Rewrite
from mcore_unpatch.editing.source import Source, Suite, last_line


def remove(
    source: Source, statements: Iterable[ast.stmt], arriving: Collection[int] = ()
) -> Iterator[Remove | Rewrite]:
    """Statements go, each with the comment right above it; a block that they would leave empty holds `pass` then.

    Blank lines stay beside lines that other statements are `arriving` at.
    """
    going = {id(node): node for node in statements}
    suites: dict[int, Suite] = {}
    for node in going.values():
        suite = source.suite(node)
        suites[id(suite[0])] = suite
    for suite in suites.values():
        leaving = [node for node in suite if id(node) in going]
        if len(leaving) == len(suite) and suite is not source.tree.body:
            yield Rewrite(leaving[0], "pass")
            del going[id(leaving[0])]
        numbered = enumerate(suite)
        for goes, group in groupby(numbered, lambda one: id(one[1]) in going):
            if goes:
                numbers, nodes = zip(*group, strict=True)
                yield from _group(source, nodes, numbers[0] == 0, numbers[-1] == len(suite) - 1, arriving)


def _group(
    source: Source, nodes: Sequence[ast.stmt], is_first: bool, is_last: bool, arriving: Collection[int]
) -> Iterator[Remove]:
    """Statements below each other; of the blank lines before, between and behind them the greatest number is left."""
    starts = [source.first_with_comments(node) for node in nodes]
    blanks = [_blank(source, starts[0] - 1, -1), *(_blank(source, last_line(node) + 1, 1) for node in nodes)]
    most = max(range(len(blanks)), key=lambda index: (blanks[index], index))
    blanks[0 if is_first else -1 if is_last else most] = 0
    blanks[0] = 0 if starts[0] in arriving else blanks[0]
    blanks[-1] = 0 if last_line(nodes[-1]) + 1 in arriving else blanks[-1]
    starts[0] -= blanks[0]
    for node, start, blank in zip(nodes, starts, blanks[1:], strict=True):
        yield Remove(node, start, last_line(node) + blank)


def _blank(source: Source, line: int, step: int) -> int:
    """How many blank lines there are from a line on."""
    number = 0
    while 1 <= line <= len(source.lines) and source.is_blank(line):
        number, line = number + 1, line + step
    return number
