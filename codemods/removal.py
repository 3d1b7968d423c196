"""What goes with a statement that goes: its comment, a blank line, an `if` or an `else` that it leaves empty."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from mcore_unpatch.codemods.changes import Asked, Change, Insert, Remove, Rewrite
from mcore_unpatch.codemods.syntax import is_pure
from mcore_unpatch.editing.source import Function, Source, Suite, first_line, last_line

_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_OPENERS = _DEFINITIONS | ast.Module


def remove(
    source: Source, statements: Iterable[ast.stmt], *, with_comments: bool = False, arriving: Collection[int] = ()
) -> Iterator[Change]:
    """Statements go; a block that they leave empty goes too, or holds `pass` then.

    The comment above one goes with it where it speaks of nothing else, or `with_comments` in any case. Blank lines stay
    beside lines that other statements are `arriving` at.
    """
    going = set(statements)
    waiting = list(going)
    while waiting:
        block = source.parents[waiting.pop()]
        if isinstance(block, ast.If | ast.Try) and block not in going and _is_idle(source, block, going):
            going.add(block)
            waiting.append(block)
    homes = {id(suite): suite for node in going if (suite := source.home[id(node)])}
    for suite in homes.values():
        if source.parents[suite[0]] not in going:
            yield from _from_suite(source, suite, going, with_comments, arriving)


def together(asked: Sequence[Asked]) -> list[Asked]:
    """The same, where statements that go for several reasons leave nothing before or behind them in their suite."""
    gone = {request.change.node for request in asked if isinstance(request.change, Remove)}
    growing = {id(one.source.home[id(one.change.node)]) for one in asked if isinstance(one.change, Insert)}
    return [_at_an_end(request, gone, growing) if isinstance(request.change, Remove) else request for request in asked]


def heads_others(source: Source, node: ast.stmt, going: Collection[ast.stmt]) -> bool:
    """Whether the comment above a function inside of another is a heading: of one below it too that stays.

    Those follow it without a comment of their own. One that names the function is about that alone.
    """
    if not isinstance(node, Function) or not isinstance(source.parents[node], Function):
        return False
    above = range(source.first_with_comments(node), first_line(node))
    if not above or any(node.name in source.line(line) for line in above):
        return False
    suite = source.home[id(node)]
    for other in suite[suite.index(node) + 1 :]:
        if not isinstance(other, Function) or source.first_with_comments(other) != first_line(other):
            return False
        if other not in going:
            return True
    return False


def _at_an_end(asked: Asked, gone: set[ast.stmt], growing: set[int]) -> Asked:
    change, source = asked.change, asked.source
    assert isinstance(change, Remove)
    suite = source.home[id(change.node)]
    if id(suite) in growing:  # what comes may stand there
        return asked
    index, kept = suite.index(change.node), [index for index, node in enumerate(suite) if node not in gone]
    if not kept or kept[0] < index < kept[-1] or not source.owns_lines(change.node):
        return asked
    is_first = index < kept[0] and not _is_set_apart(source, suite[kept[0] :])
    [whole] = _group(source, [change.node], gone, is_first, index > kept[-1], with_comments=True)
    return replace(
        asked, change=replace(change, first=min(whole.first, change.first), last=max(whole.last, change.last))
    )


def _is_set_apart(source: Source, left: Suite) -> bool:
    """Whether a function begins what is left of a block: formatters want a blank line there, in an `if` or a loop."""
    return bool(left) and isinstance(left[0], _DEFINITIONS) and not isinstance(source.parents[left[0]], _OPENERS)


def _is_idle(source: Source, block: ast.If | ast.Try, going: set[ast.stmt]) -> bool:
    """Whether a block does nothing without what goes: nothing raises in an empty `try`, and an `if` only asks."""
    if isinstance(block, ast.Try):
        return going.issuperset([*block.body, *block.orelse, *block.finalbody])
    is_elif = source.line(block.lineno).lstrip().startswith("elif")
    return is_pure(block.test) and not is_elif and going.issuperset(block.body + block.orelse)


def _from_suite(
    source: Source, suite: Suite, going: set[ast.stmt], with_comments: bool, arriving: Collection[int]
) -> Iterator[Change]:
    leaving = [node for node in suite if node in going]
    parent = source.parents[suite[0]]
    if len(leaving) == len(suite) and not isinstance(parent, ast.Module):
        if isinstance(parent, ast.If) and suite is parent.orelse:
            lines = range(first_line(suite[0]), 0, -1)
            otherwise = next(line for line in lines if source.line(line).lstrip().startswith("else"))
            first, *others = leaving
            yield Remove(first, otherwise, last_line(first))
            yield from (Remove(node, first_line(node), last_line(node)) for node in others)
            return
        yield Rewrite(leaving.pop(0), "pass")
    gone = set(leaving)
    kept = [index for index, node in enumerate(suite) if node not in gone] or [len(suite)]
    for goes, group in groupby(enumerate(suite), lambda numbered: numbered[1] in gone):
        if goes:
            indices, nodes = zip(*group, strict=True)
            is_first = indices[0] < kept[0] and not _is_set_apart(source, suite[kept[0] :])
            yield from _group(source, nodes, gone, is_first, indices[0] > kept[-1], with_comments, arriving)


def _group(
    source: Source,
    nodes: Sequence[ast.stmt],
    gone: Collection[ast.stmt],
    is_first: bool,
    is_last: bool,
    with_comments: bool,
    arriving: Collection[int] = (),
) -> Iterator[Remove]:
    """Statements below each other; of the blank lines before, between and behind them the greatest number is left."""
    after = [_blank(source, last_line(node) + 1, 1) for node in nodes]
    starts = [
        source.first_with_comments(node)
        if with_comments or is_last or blank or isinstance(node, _DEFINITIONS)
        else first_line(node)
        for node, blank in zip(nodes, after, strict=True)
    ]
    if heads_others(source, nodes[0], gone):  # the comment comes to stand above the next of them
        starts[0], is_first = first_line(nodes[0]), True
    blanks = [_blank(source, starts[0] - 1, -1), *after]
    if starts[0] in arriving:
        blanks[0], is_first = 0, False
    if last_line(nodes[-1]) + 1 in arriving:
        blanks[-1], is_last = 0, False
    most = max(range(len(blanks)), key=lambda index: (blanks[index], index))
    blanks[0 if is_first else -1 if is_last else most] = 0
    starts[0] -= blanks[0]
    for node, start, blank in zip(nodes, starts, blanks[1:], strict=True):
        yield Remove(node, start, last_line(node) + blank)


def _blank(source: Source, line: int, step: int) -> int:
    """How many blank lines there are from a line on."""
    number = 0
    while 1 <= line <= len(source.lines) and source.is_blank(line):
        number, line = number + 1, line + step
    return number
