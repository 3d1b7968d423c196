"""What goes with an entry or a statement that goes: a comma, a line, a branch that it leaves empty."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from mcore_unpatch.codemods.changes import Change
from mcore_unpatch.codemods.source import Source, Span, Suite, first_line, last_line, suites

_REST_OF_LINE = re.compile(rb"[ \t]*,?[ \t]*(#[^\r\n]*)?(\r?\n|$)")
_COMMA = re.compile(rb"[ \t]*,[ \t]*")
_IMPURE = ast.Call | ast.Await | ast.NamedExpr | ast.Yield | ast.YieldFrom


def entry(source: Source, parts: list[Span], index: int, inside: Span) -> Span:
    """The bytes of one of the parts between two brackets; `inside` is all that stands between these."""
    data, (start, end) = source.data, parts[index]
    line = data.rfind(b"\n", 0, start) + 1
    rest = _REST_OF_LINE.match(data, end)
    if len(parts) == 1 and b"#" not in data[inside.start : inside.end]:
        return inside
    if rest and not data[line:start].strip():
        return Span(line, rest.end())
    if index and b"\n" not in data[parts[index - 1].end : start]:
        return Span(parts[index - 1].end, end)
    if index + 1 < len(parts) and b"\n" not in data[end : parts[index + 1].start]:
        return Span(start, parts[index + 1].start)
    comma = _COMMA.match(data, end)
    return Span(start, comma.end() if comma else end)


def statements(source: Source, nodes: Iterable[ast.stmt], parents: dict[int, ast.AST]) -> Iterator[Change]:
    """Statements go; with them an `if` or an `else` that they leave empty, or `pass` takes their place."""
    going = set(nodes)
    waiting = list(going)
    while waiting:
        branch = parents[id(waiting.pop())]
        if isinstance(branch, ast.If) and branch not in going and going.issuperset(branch.body + branch.orelse):
            if _can_go(source, branch):
                going.add(branch)
                waiting.append(branch)
    homes = {id(suite): suite for suite in suites(source.tree) if not going.isdisjoint(suite)}
    for suite in homes.values():
        parent = parents[id(suite[0])]
        if parent not in going:
            yield from _from_suite(source, suite, going, parent)


def _from_suite(source: Source, suite: Suite, going: set[ast.stmt], parent: ast.AST) -> Iterator[Change]:
    leaving = [node for node in suite if node in going]
    if len(leaving) == len(suite):
        if isinstance(parent, ast.If) and suite is parent.orelse:
            lines = range(last_line(parent.body[-1]) + 1, first_line(suite[0]) + 1)
            start = next(line for line in lines if source.line(line).lstrip().startswith("else"))
            yield Change(source.line_span(start, last_line(suite[-1])), "")
            return
        yield Change(source.span(leaving.pop(0)), "pass")
    left = [node.lineno for node in suite if node not in leaving]
    for node in leaving:
        if source.owns_lines(node):
            is_first, is_last = node.lineno < left[0], node.lineno > left[-1]
            yield Change(_lines(source, node, is_first, is_last), "")
        else:
            yield Change(source.span(node), "pass")


def _can_go(source: Source, branch: ast.If) -> bool:
    """Whether an `if` can go with its body: it is no `elif`, and its test does nothing."""
    is_elif = source.line(branch.lineno).lstrip().startswith("elif")
    return not is_elif and not any(isinstance(node, _IMPURE) for node in ast.walk(branch.test))


def _lines(source: Source, node: ast.stmt, is_first: bool, is_last: bool) -> Span:
    """The lines of a statement among others, with a comment that is about it alone and a blank line left over."""
    first, last = first_line(node), last_line(node)
    if is_last or source.is_blank(last + 1):
        first = source.first_with_comments(node)
    set_off = is_first or source.is_blank(first - 1)
    while set_off and not is_last and source.is_blank(last + 1):
        last += 1
    while set_off and is_last and source.is_blank(first - 1):
        first -= 1
    return source.line_span(first, last)
