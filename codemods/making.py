"""From changes of nodes to edits of bytes: what each change puts in the place of which bytes of the file."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from mcore_unpatch.codemods.changes import (
    AddArguments,
    AddParameters,
    Asked,
    Change,
    Header,
    Insert,
    Keep,
    Make,
    Remove,
    Replace,
    Rewrite,
)
from mcore_unpatch.editing.edits import Edit, Unsound, splice
from mcore_unpatch.editing.source import Function, Source, Span, first_line, last_line

_PRAGMAS = ("# type:", "# noqa", "# pyright:")
_CLOSING = re.compile(rb"(?:\s|\\|#[^\r\n]*)*\)")
_SAID_BEHIND = re.compile(rb"[ \t]*,[ \t]*#[^\r\n]*")
_ON_ITS_OWN_LINE = re.compile(rb"[\r\n]([ \t]*)[*(]*$")
_TEXTS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def made(source: Source, asked: Iterable[Asked]) -> bytes:
    """A file with changes made."""
    return splice(source.data, edits_of(source, asked))


def edits_of(source: Source, asked: Iterable[Asked]) -> list[Edit]:
    """The changes of one file in bytes; raises `Unsound` for one that cannot be made."""
    edits: dict[tuple[Span, bytes], Edit] = {}  # what two ask for is made once
    for request in asked:
        why = request.reason
        for span, text in _pieces(source, request.change):
            new = source.encode(_plain(text))
            if new != source.data[span.start : span.end]:
                edit = Edit(source.path, why.rule, why.level, *span, new, why.title, why.notes, why.finding_line)
                edits.setdefault((span, new), replace(edit, gain=why.gain, group=why.group))
    return sorted(edits.values(), key=lambda edit: (edit.start, edit.end))


def _pieces(source: Source, change: Change) -> Iterator[tuple[Span, str]]:
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
            yield _behind(source, sorted(map(source.span, given)), source.span(node).end - 1, texts)
        case AddParameters(node, texts):
            known, (_, close, _) = _parameters(source, node), _header(source, node)
            if known and len(known) == len(node.args.posonlyargs):  # behind the `/`
                known = [*known[:-1], Span(known[-1].start, source.data.index(b"/", known[-1].end) + 1)]
            yield _behind(source, known, close, texts)
        case Header(node, parameters):
            opening, _, colon = _header(source, node)
            yield Span(opening + 1, colon), f"{parameters})"
            if node.decorator_list:
                yield source.line_span(first_line(node), node.lineno - 1), ""
        case Make(node):
            span = Span(source.offset(first_line(node), node.col_offset), source.span(node).end)
            yield span, _remade(source, change, source.text_of(span))
        case Rewrite(node, text):
            _refuse_shared(source, node)
            indent, last = source.indentation(node), last_line(node)
            start, end = source.offset(first_line(node), node.col_offset), source.span(node).end
            if not change.tell_checkers and is_for_checkers(source, node):
                end = source.line_span(last, last).start + len(source.line(last).encode(source.encoding))
            yield Span(start, end), _moved(text, indent).removeprefix(indent)
        case Keep(node, branch):
            _refuse_shared(source, node)
            yield source.line_span(first_line(node), last_line(node)), _kept(source, branch, source.indentation(node))
        case Remove(node, first, last):
            _refuse_shared(source, node)
            yield source.line_span(first, last), ""
        case Insert(node, before, text):
            _refuse_shared(source, source.suite(node)[0], also_behind=False)
            text, number = _moved(text, source.indentation(node)), len(source.lines)
            at = source.line_span(min(before, number), before)
            ended = before <= number or source.data.endswith((b"\n", b"\r"))
            yield Span.at(at.start if before <= number else at.end), f"{text}\n" if ended else f"\n{text}"


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


def _refuse_shared(source: Source, node: ast.stmt, also_behind: bool = True) -> None:
    """Raise for a statement that does not begin its line, or has another behind it."""
    if source.line(first_line(node))[: node.col_offset].strip() or (also_behind and not source.owns_lines(node)):
        raise Unsound({source.path: f"line {node.lineno} holds more than one statement"})


def is_for_checkers(source: Source, node: ast.stmt) -> bool:
    """Whether all that is said behind a statement is."""
    said = source.line(last_line(node)).encode()[node.end_col_offset :].decode(errors="replace")
    return "#" in said and all(f"#{part}".startswith(_PRAGMAS) for part in said.split("#")[1:])


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

    indent = source.indentation(change.node)
    node: cst.CSTNode = cst.parse_statement(_moved(indent + _plain(text), "", indent))
    node = node.body[0] if isinstance(node, cst.SimpleStatementLine) else node
    return _moved(cst.Module([]).code_for_node(change.make(node)), indent).strip()


def _kept(source: Source, branch: list[ast.stmt], indent: str) -> str:
    """The lines of a branch, with the comments above its statements."""
    first = first_line(branch[0])
    text = source.text_of(source.line_span(source.first_with_comments(branch[0]), last_line(branch[-1])))
    if source.line(first)[: branch[0].col_offset].strip():  # behind the colon
        return indent + source.text_of(Span(source.span(branch[0]).start, source.line_span(first, first).end))
    return _moved(text, indent, source.indentation(branch[0]))
