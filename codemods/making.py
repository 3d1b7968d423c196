"""From changes of nodes to edits of bytes: what each change puts in the place of which bytes of the file.

A change is a piece of the file, or several. A piece inside of another is a part of what the outer one keeps (a branch
that takes the place of its `if`, a node that libcst is to make another of), or goes with the rest of it.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from mcore_unpatch.codemods.changes import (
    AddArguments,
    AddParameters,
    Asked,
    Change,
    Header,
    Insert,
    Make,
    Remove,
    Replace,
    Rewrite,
    Unwrap,
    least_safe,
)
from mcore_unpatch.codemods.layout import in_rows
from mcore_unpatch.editing.edits import Edit, Unsound, splice
from mcore_unpatch.editing.source import Function, Source, Span, Suite, first_line, last_line

_PRAGMAS = ("# type:", "# noqa", "# pyright:")
_CLOSING = re.compile(rb"(?:\s|\\|#[^\r\n]*)*\)")
_SAID_BEHIND = re.compile(rb"[ \t]*,[ \t]*#[^\r\n]*")
_ON_ITS_OWN_LINE = re.compile(rb"[\r\n]([ \t]*)[*(]*$")
_TEXTS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
_Render = Callable[[Span], str]  # the text of some bytes, with the pieces inside of them
_New = str | Callable[[_Render], str]


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """Bytes of a file, and what comes in their place."""

    span: Span
    new: _New
    asked: Asked


def made(source: Source, asked: Iterable[Asked]) -> bytes:
    """A file with changes made."""
    return splice(source.data, edits_of(source, asked))


def edits_of(source: Source, asked: Iterable[Asked]) -> list[Edit]:
    """The changes of one file in bytes; raises `Unsound` for one that cannot be made."""
    every = list(asked)
    pieces = [_Piece(span, new, request) for request in every for span, new in _pieces(source, request.change)]
    pieces = _in_order([*pieces, *_passes(source, every)])

    def outermost(within: Span, edges: Span | tuple[()] = ()) -> Iterator[_Piece]:
        """The pieces between two places; what comes at the edges of one stands outside of it."""
        done = within.start
        for piece in pieces[bisect_left(pieces, within.start, key=lambda other: other.span.start) :]:
            start, end = piece.span
            if start > within.end:
                break
            if done <= start and end <= within.end and piece.span != edges and not (start == end and start in edges):
                yield piece
                done = end

    def text(piece: _Piece) -> str:
        def render(span: Span) -> str:
            parts, done = list[str](), span.start
            for inner in outermost(span, piece.span):
                parts += [_plain(source.text_of(Span(done, inner.span.start))), text(inner)]
                done = inner.span.end
            return "".join([*parts, _plain(source.text_of(Span(done, span.end)))])

        return piece.new if isinstance(piece.new, str) else piece.new(render)

    edits: list[Edit] = []
    last: Asked | None = None
    for piece in outermost(Span(0, len(source.data))):
        (start, end), new = piece.span, source.encode(text(piece))
        if not new and edits and last is piece.asked and edits[-1].end == start and not edits[-1].replacement:
            edits[-1] = replace(edits[-1], end=end)  # more lines of one statement
        elif new != source.data[start:end]:
            inner = () if isinstance(piece.new, str) else outermost(piece.span, piece.span)
            reasons = [piece.asked.reason, *(piece.asked.reason for piece in inner)]
            why, notes = least_safe(reasons), dict.fromkeys(note for reason in reasons for note in reason.notes)
            of = (source.path, why.rule, why.level)
            edits.append(Edit(*of, start, end, new, why.title, tuple(notes), why.finding_line, why.gain, why.group))
        last = piece.asked
    return _without_the_last_newline(source, edits)


def _in_order(pieces: Sequence[_Piece]) -> list[_Piece]:
    """At one place what comes stands before what goes, and what is around another before that."""
    going = [piece for piece in pieces if isinstance(piece.asked.change, Remove) and piece.span.start < piece.span.end]
    cuts = sorted(
        {one.span.start for one in pieces if one.span.start == one.span.end}.union(*(piece.span for piece in going))
    )
    every = [piece for piece in pieces if piece not in going]
    for piece in going:  # something may come among lines that go, and two may ask for the same lines
        inside = cuts[bisect_left(cuts, piece.span.start) : bisect_left(cuts, piece.span.end) + 1]
        every += [replace(piece, span=Span(*pair)) for pair in pairwise(inside)]
    return sorted(every, key=lambda piece: (piece.span.start, piece.span.start != piece.span.end, -piece.span.end))


def _without_the_last_newline(source: Source, edits: list[Edit]) -> list[Edit]:
    """Of a file that ends without one, what goes at the end goes with the newline before it."""
    newline = source.newline.encode()
    if not edits or edits[-1].end < len(source.data) or source.data.endswith((b"\n", b"\r")):
        return edits
    *others, last = edits
    while others and others[-1].end == last.start and not others[-1].replacement:
        last = replace(last, start=others.pop().start, replacement=last.replacement.removeprefix(newline))
    if last.replacement:
        return [*others, last]
    if others and others[-1].end == last.start:
        return [*others[:-1], replace(others[-1], replacement=others[-1].replacement.removesuffix(newline)), last]
    return [*others, replace(last, start=max(0, last.start - len(newline)))]


def _pieces(source: Source, change: Change) -> Iterator[tuple[Span, _New]]:
    """What a change puts in the place of which bytes."""
    match change:
        case Replace(node, text):
            inside = isinstance(node, ast.Tuple | ast.GeneratorExp) and source.text(node).startswith("(")
            start, end = source.span(node)
            indent = source.indentation(next(one for one in source.above(node) if isinstance(one, ast.stmt)))
            yield Span(start + inside, end - inside), _moved(text, indent).removeprefix(indent)
        case AddArguments(node, texts):
            given: list[ast.expr | ast.keyword] = [*node.args, *(one for one in node.keywords if one.arg is not None)]
            given = given or [*node.keywords]
            opening, close = source.data.index(b"(", source.span(node.func).end), source.span(node).end - 1
            yield _in_brackets(source, sorted(map(source.span, given)), opening, close, texts)
        case AddParameters(node, texts):
            known, (opening, close, _) = _parameters(source, node), _header(source, node)
            if known and len(known) == len(node.args.posonlyargs):  # behind the `/`
                known = [*known[:-1], Span(known[-1].start, source.data.index(b"/", known[-1].end) + 1)]
            yield _in_brackets(source, known, opening, close, texts)
        case Header(node, parameters, undecorated):
            opening, _, colon = _header(source, node)
            yield Span(opening + 1, colon), f"{parameters})"
            if undecorated:
                yield source.line_span(first_line(node), node.lineno - 1), ""
        case Make(node):
            start = source.offset(first_line(node) if isinstance(node, ast.stmt) else node.lineno, node.col_offset)
            span = Span(start, source.span(node).end)
            yield span, lambda render: _remade(source, change, render(span))
        case Rewrite(node):
            _refuse_shared(source, node)
            indent, last = source.indentation(node), _end(source, node)
            start, end = source.offset(first_line(node), node.col_offset), _line_end(source, last)
            if not getattr(node, "body", None) and (change.tell_checkers or not is_for_checkers(source, node)):
                end = source.span(node).end
            yield Span(start, end), _moved(_text(change), indent).removeprefix(indent)
        case Unwrap(node):
            _refuse_shared(source, node)
            span = source.line_span(first_line(node), _end(source, node))
            yield span, lambda render: _unwrapped(source, change, render)
        case Remove(node, first, last):
            _refuse_shared(source, node)
            yield source.line_span(first, max(last, _end(source, node))), ""
        case Insert(node, before):
            _refuse_shared(source, source.home[id(node)][0], also_behind=False)
            text, number = _moved(_text(change), source.indentation(node)), len(source.lines)
            at = source.line_span(min(before, number), before)
            if before <= number or source.data.endswith((b"\n", b"\r")):
                yield Span.at(at.start if before <= number else at.end), f"{text}\n"
            else:
                yield Span.at(at.end), f"\n{text}"


def _text(change: Insert | Rewrite) -> str:
    return change.text if isinstance(change.text, str) else change.text()


def _plain(text: str) -> str:
    """Text with one kind of line ending: a file may have several."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _moved(text: str, indent: str, instead_of: str = "") -> str:
    """Text with another indentation; lines that begin within a string keep theirs."""
    text = _plain(text)
    lines, inside = text.split("\n"), set[int]()
    if len(lines) > 1:
        for token in tokenize.generate_tokens(io.StringIO(f"{text}\n").readline):
            inside |= set(range(token.start[0], token.end[0])) if token.type in _TEXTS else set()
    for number, line in enumerate(lines):
        if number not in inside and line.startswith(instead_of):
            lines[number] = (indent if line.strip() else "") + line.removeprefix(instead_of)
    return "\n".join(lines)


def _end(source: Source, node: ast.stmt, indent: int | None = None) -> int:
    """The last line of a statement, with the comments behind it that are indented as what stands in it, or more."""
    end, least = last_line(node), node.col_offset + 1 if indent is None else indent
    for line in range(end + 1, len(source.lines) + 1) if indent is not None or hasattr(node, "body") else ():
        text = source.line(line)
        if text.strip() and not (source.is_comment(line) and len(text) - len(text.lstrip()) >= least):
            break
        end = line if text.strip() else end
    return end


def _line_end(source: Source, line: int) -> int:
    return source.line_span(line, line).start + len(source.line(line).encode(source.encoding))


def _refuse_shared(source: Source, node: ast.stmt, also_behind: bool = True) -> None:
    """Raise for a statement that does not begin its line, or has another behind it."""
    if source.line(first_line(node))[: node.col_offset].strip() or (also_behind and not source.owns_lines(node)):
        raise Unsound({source.path: f"line {node.lineno} holds more than one statement"})


def is_for_checkers(source: Source, node: ast.stmt) -> bool:
    """Whether all that is said behind a statement is."""
    said = source.text_of(Span(source.span(node).end, _line_end(source, last_line(node))))
    return "#" in said and all(f"#{part}".startswith(_PRAGMAS) for part in said.split("#")[1:])


def _in_brackets(
    source: Source, known: Sequence[Span], opening: int, close: int, texts: Iterable[str]
) -> tuple[Span, _New]:
    """What comes behind the last known one; all that is in the brackets, in rows, where one line would be too long."""
    span, text = _behind(source, known, close, texts)
    start, end = source.data.rfind(b"\n", 0, opening) + 1, source.data.find(b"\n", close)
    line = source.text_of(Span(start, end if end >= 0 else len(source.data)))
    pinned = b"\n" in source.data[opening:close] or "#" in line  # a comment may be for a checker, which reads one line
    if pinned or len(line) + len(text) <= source.width:
        return span, text
    before, after, indent = Span(opening + 1, span.start), Span(span.end, close), line[: len(line) - len(line.lstrip())]
    return Span(opening + 1, close), lambda render: in_rows(source, indent, render(before) + text + render(after))


def _behind(source: Source, known: Sequence[Span], close: int, texts: Iterable[str]) -> tuple[Span, str]:
    """Arguments or parameters behind the last known one, each on a line of its own if that is."""
    if not known:
        return Span.at(close), ", ".join(texts)
    *others, last = known
    at = last.end
    while bracket := _CLOSING.match(source.data, at, close):
        at = bracket.end()
    own_line = _ON_ITS_OWN_LINE.search(source.data[others[-1].end : last.start]) if others else None
    comma = f",\n{own_line[1].decode()}" if own_line else ", "
    if own_line and (said := _SAID_BEHIND.match(source.data, at, close)):  # it speaks of the last one
        return Span.at(said.end()), "".join(f"{comma[1:]}{text}," for text in texts)
    return Span.at(at), "".join(comma + text for text in texts)


def _parameters(source: Source, function: Function) -> list[Span]:
    """All but `**`, with their defaults."""
    spec = function.args
    positional = [*spec.posonlyargs, *spec.args]
    defaults = [*[None] * (len(positional) - len(spec.defaults)), *spec.defaults, None, *spec.kw_defaults]
    every = zip([*positional, spec.vararg, *spec.kwonlyargs], defaults, strict=True)
    return [Span(source.span(one).start, source.span(value or one).end) for one, value in every if one is not None]


def _header(source: Source, function: Function) -> tuple[int, int, int]:
    """Where the brackets around the parameters of a function stand, and the colon behind them."""
    start = source.offset(function.lineno, function.col_offset)
    text = re.sub(r"\r(?!\n)", "\n", source.text_of(Span(start, source.span(function.body[0]).start)))
    lines, lengths, depth = text.split("\n"), list[int](), 0
    for token in tokenize.generate_tokens(io.StringIO(text, newline="\n").readline):
        depth += (token.string in {"(", "[", "{"}) - (token.string in {")", "]", "}"})
        wanted = ("(", 1), (")", 0), (":", 0)
        if (token.string, depth) == wanted[len(lengths)]:
            row, column = token.start
            before = "\n".join([*lines[: row - 1], lines[row - 1][:column]])
            lengths.append(start + len(before.encode(source.encoding)))
        if len(lengths) == len(wanted):
            break
    opening, closing, colon = lengths
    return opening, closing, colon


def _remade(source: Source, change: Make, text: str) -> str:
    """What a function makes of a node of libcst, as code."""
    import libcst as cst

    if isinstance(change.node, ast.expr):
        return cst.Module([]).code_for_node(change.make(cst.parse_expression(text)))
    indent = source.indentation(change.node)
    node: cst.CSTNode = cst.parse_statement(_moved(indent + text, "", indent))
    node = node.body[0] if isinstance(node, cst.SimpleStatementLine) else node
    return _moved(cst.Module([]).code_for_node(change.make(node)), indent).strip()


def _unwrapped(source: Source, change: Unwrap, render: _Render) -> str:
    """The statements that take the place of a whole `if` or `try`."""
    node = change.node
    if change.keep == "handler" and isinstance(node, ast.Try):
        suites = [node.handlers[0].body]
    elif change.keep == "orelse":
        suites = [node.orelse]
    else:
        suites = [node.body, *([node.orelse] if node.orelse and isinstance(node, ast.Try) else [])]
    return "".join(_kept(source, suite, source.indentation(node), render) for suite in suites)


def _kept(source: Source, suite: Suite, indent: str, render: _Render) -> str:
    """The lines of a suite, with the comments above and behind its statements."""
    first, column = first_line(suite[0]), suite[0].col_offset
    span = source.line_span(first, _end(source, suite[-1], column))
    if source.line(first).lstrip().startswith("elif"):
        return render(span).replace("elif", "if", 1)
    if source.line(first)[:column].strip():  # behind the colon
        return indent + render(Span(source.span(suite[0]).start, span.end))
    while source.is_blank(first - 1) or source.is_comment(first - 1):
        first -= 1
    span = Span(source.line_span(first, first).start, span.end)
    return _moved(render(span), indent, source.indentation(suite[0]))


def _passes(source: Source, asked: Sequence[Asked]) -> Iterator[_Piece]:
    """`pass` in suites that lose all their statements, for several reasons."""
    gone = {id(request.change.node): request for request in asked if isinstance(request.change, Remove)}
    growing = {id(source.home[id(request.change.node)]) for request in asked if isinstance(request.change, Insert)}
    for suite in {id(source.home[key]): source.home[key] for key in gone}.values():
        first, above = gone.get(id(suite[0])), [*source.above(suite[0])]
        if first is None or id(suite) in growing or len(above) == 1 or any(id(around) in gone for around in above):
            continue
        change = first.change
        with_head = isinstance(change, Remove) and source.line(change.first).lstrip().startswith("else")
        if not with_head and all(id(statement) in gone for statement in suite):
            line = first_line(suite[0])
            yield _Piece(Span.at(source.line_span(line, line).start), f"{source.indentation(suite[0])}pass\n", first)
