"""What a codemod asks for: nodes of a file that are replaced, rewritten, removed or added, and why.

A change names nodes of the file's `ast`, which the analysis has at hand, and new source text. It is data: `making`
makes edits of it.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from mcore_unpatch.editing.edits import LEVELS, Level
from mcore_unpatch.editing.source import Function, Source, Span, last_line
from mcore_unpatch.records import dataclass, record, replace

if TYPE_CHECKING:
    import libcst as cst


@record
class Reason:
    """What a change is for, as people are told, and whether it takes their consent."""

    rule: str
    level: Level
    title: str
    notes: tuple[str, ...] = ()
    finding_line: int = 0  # of the finding that this and other changes answer together
    gain: str = ""  # what a maintainer has of it, in a line
    group: str = ""  # changes that need each other

    @property
    def elsewhere(self) -> Reason:
        """The same for a change of another file: what is said of the finding is said in its own."""
        return replace(self, finding_line=0, notes=())


def least_safe(reasons: Iterable[Reason]) -> Reason:
    """The reason that speaks for a change that has several."""
    return min(reasons, key=lambda reason: (-LEVELS.index(reason.level), reason.rule))


@dataclass(frozen=True, slots=True, eq=False)
class Replace:
    """Another expression in the place of one; brackets around it stay."""

    node: ast.expr
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class AddArguments:
    """Arguments more, before `**` and laid out as the others are."""

    node: ast.Call
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Header:
    """Other parameters of a function, which then no longer says what it returns."""

    node: Function
    parameters: str
    undecorated: bool = False  # its decorators go


@dataclass(frozen=True, slots=True, eq=False)
class AddParameters:
    """Parameters more, before `**` and laid out as the others are."""

    node: Function
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Make:
    """What a function of libcst nodes makes of one: for everything that the other changes cannot say."""

    node: ast.stmt | ast.expr
    make: Callable[[cst.CSTNode], cst.CSTNode]


@dataclass(frozen=True, slots=True, eq=False)
class Rewrite:
    """Other statements in the place of one; comments above and behind it stay."""

    node: ast.stmt
    text: str | Callable[[], str]  # or what makes it, once it is needed
    tell_checkers: bool = True  # else a comment behind it that is for a checker goes


@dataclass(frozen=True, slots=True, eq=False)
class Unwrap:
    """One part of an `if` or a `try` takes the place of the whole."""

    node: ast.If | ast.Try
    keep: Literal["body", "orelse", "handler"]


@dataclass(frozen=True, slots=True, eq=False)
class Remove:
    """A statement goes, with the lines from `first` to `last`; `removal` says which these are."""

    node: ast.stmt
    first: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class Insert:
    """Whole lines come to the suite of a statement, before one of its lines or behind the last."""

    node: ast.stmt
    before: int
    text: str | Callable[[], str]  # or what makes it, once it is needed


Change = Replace | AddArguments | Header | AddParameters | Make | Rewrite | Unwrap | Remove | Insert


def above(source: Source, statement: ast.stmt, text: str | Callable[[], str]) -> Insert:
    """Lines before a statement and before the comment that speaks of it."""
    return Insert(statement, source.first_with_comments(statement), text)


def below(statement: ast.stmt, text: str | Callable[[], str]) -> Insert:
    """Lines behind a statement."""
    return Insert(statement, last_line(statement) + 1, text)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A change of a file, and why."""

    source: Source
    change: Change
    reason: Reason

    @property
    def path(self) -> str:
        """The file."""
        return self.source.path

    @property
    def touches(self) -> Span:
        """The bytes that no other change may touch: those of the node, or none for what only comes."""
        change, source = self.change, self.source
        if isinstance(change, Insert):
            return Span.at(source.line_span(min(change.before, len(source.lines)), change.before).start)
        if isinstance(change, Remove):
            return source.line_span(change.first, change.last)
        if isinstance(change, Header | AddParameters):
            first = change.node.body[0]
            return Span(source.offset(change.node.lineno, change.node.col_offset), source.span(first).start)
        return source.span(change.node)


class Taken:
    """The bytes of each file that changes touch."""

    def __init__(self, asked: Iterable[Asked]) -> None:
        self._spans: defaultdict[str, list[Span]] = defaultdict(list)
        for request in asked:
            self._spans[request.path].append(request.touches)

    def take(self, spans: Sequence[tuple[str, Span]]) -> bool:
        """Take more; False, and nothing is taken, where one of them is taken already."""
        if any(
            span.start < other.end and other.start < span.end for path, span in spans for other in self._spans[path]
        ):
            return False
        for path, span in spans:
            self._spans[path].append(span)
        return True
