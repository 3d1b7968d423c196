"""The statements of a piece of code that is cut out of a file, such as one side of a hunk."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from mcore_unpatch.codemods.fingerprints.normalise import DEEPEST, ELIF, nesting, parts
from mcore_unpatch.megatron.definitions import STATEMENT_BYTES

# In time that grows with the text alone, which the standard tokenizer's does not on long lines, and without an end.
_QUOTES = "\"'"
_TOKENS = {
    "text": "|".join(rf"{q * 3}(?:[^\\{q}]++|\\.|{q}(?!{q * 2}))*+{q * 3}" for q in _QUOTES),
    "cut": "|".join(q * 3 for q in _QUOTES),
    "string": "|".join(rf"{q}(?:[^\\{q}\n]++|\\.)*+{q}" for q in _QUOTES),
    "comment": r"#[^\n]*+",
    "join": r"\\\n",
    "newline": r"\n",
    "open": r"[(\[{]",
    "close": r"[)\]}]",
    "other": rf"[^{_QUOTES}#\\\n()\[\]{{}}]++|.",
}
_tokens = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _TOKENS.items()), re.DOTALL).finditer
# Heads that are no statements themselves, and the block that begins with them.
_HEADS = {"else": 1, "except": 2, "finally": 3, "case": 4}
_WORD = re.compile(r"\w+")
_INDENT = 4
_OPERATORS = "+-*/%|&^<>=.~"
_DOING = ast.Call | ast.Await | ast.Yield | ast.YieldFrom | ast.Constant  # what stands alone as a statement
_LONGEST = 1_000  # of a line, in characters: what people write is below, and some take long to read


class Statement(NamedTuple):
    """A statement, or the head of a compound one; `first` and `last` are its lines, counted from 0."""

    digest: bytes
    depth: int
    block: int
    first: int
    last: int
    node: ast.stmt


@dataclass(slots=True)
class Fragment:
    """What can be read of a piece of code."""

    statements: list[Statement] = field(default_factory=list)
    code: list[str] = field(default_factory=list)  # each line without its comment
    cut: set[int] = field(default_factory=set)  # lines of statements that begin above it or end below it
    heads: set[int] = field(default_factory=set)  # lines of `else:` and the like, which belong to what follows
    hidden: set[int] = field(default_factory=set)  # of these, such that say what no digest shows: `except ValueError:`
    texts: set[int] = field(default_factory=set)  # lines of strings that stand alone
    parameters: dict[str, int] = field(default_factory=dict)  # of a definition whose head is cut, with their lines


class _Line(NamedTuple):
    """A logical line, without its comments."""

    first: int
    last: int
    indent: int
    text: str


@lru_cache(64)
def read(lines: tuple[str, ...]) -> Fragment:
    """Read a piece of code that may begin and end anywhere: in a call, in a docstring."""
    if any(len(line) > _LONGEST for line in lines):
        return Fragment(code=list(lines), cut=set(range(len(lines))))
    text = "\n".join(lines)
    ways = [_read(text, len(lines))]
    if '"""' in text or "'''" in text:
        opening = text.find('"""') if '"""' in text else text.find("'''")
        above = text.count("\n", 0, opening) + 1  # where it begins within a string, what ends that is no code
        rest = "\n" * (above - 1) + " " * 4 + text[opening + 3 :]
        ways.append(_read(rest, len(lines)))
        ways[-1].cut.update(range(above))
        ways[-1].code[:above] = lines[:above]  # that it is text is likely, not sure
    return max(ways, key=lambda way: len(way.statements) - len(way.cut) / (len(lines) + 1))


def _read(text: str, number: int) -> Fragment:
    found = Fragment(code=[""] * number)
    logical, head_end, tail_start = _logical(text, found.code)
    found.cut = {*range(head_end + 1), *range(tail_start, number)}
    block, decorators, decorated = 0, "", -1
    for line in logical:
        if line.text.startswith("@"):
            decorators += f"{line.text}\n"
            decorated = line.first if decorated < 0 else decorated
            continue
        word = _WORD.match(line.text)
        if word and word[0] in _HEADS and line.text.endswith(":"):
            block = _HEADS[word[0]]
            found.heads.update(range(line.first, line.last + 1))
            found.hidden.update(range(line.first, line.last + 1) if block in (2, 4) else ())
            continue
        made = _statements(decorators + line.text)
        if made is None or line.indent % _INDENT:
            return Fragment(code=found.code, cut=set(range(number)))  # it is within something, or no Python
        for index, (digest, depth, inner, node) in enumerate(made):
            first = (block or inner) if index == 0 else inner
            deep = line.indent // _INDENT + depth
            begin = line.first if decorated < 0 else decorated
            found.statements.append(Statement(digest, deep, first, begin, line.last, node))
        if not made:
            found.texts.update(range(line.first, line.last + 1))
        block, decorators, decorated = 0, "", -1
    found.cut.update(range(decorated, number) if decorated >= 0 else ())  # of what stands below
    if any(after.depth > before.depth + hasattr(before.node, "body") for before, after in pairwise(found.statements)):
        return Fragment(code=found.code, cut=set(range(number)))  # no block begins there
    if head_end >= 0:
        found.parameters = _parameters(text.split("\n")[: head_end + 1])
    return found


def _logical(text: str, code: list[str]) -> tuple[list[_Line], int, int]:
    """The whole logical lines, the last line of a statement that begins above, the first of one that ends below."""
    found: list[_Line] = []
    pieces: list[str] = []
    depth, row, first, head_end = 0, 0, -1, -1
    within_cut = False

    def end() -> None:
        nonlocal pieces, first, within_cut, head_end
        if within_cut:
            head_end, within_cut = row, False
        elif first >= 0:
            whole = "".join(pieces)
            stripped = whole.strip()
            indent = len(whole) - len(whole.lstrip())
            if stripped:
                found.append(_Line(first, row, indent, stripped))
        pieces, first = [], -1

    for token in _tokens(text):
        kind, said = token.lastgroup, token[0]
        if kind == "newline" and depth == 0:
            end()
            row += 1
            continue
        if kind == "cut":
            if not "".join(code[: row + 1]).rstrip().endswith(":"):
                code[row:] = text.split("\n")[row:]  # no docstring for sure
            return found, head_end, row if first < 0 else first  # a string that ends below
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth -= 1
            if depth < 0:  # it was opened above
                found, pieces, depth, within_cut = [], [], 0, True
        if kind != "comment":
            if kind != "newline":
                code[row] += said.split("\n")[0]
            pieces.append(said)
            if first < 0 and said.strip():
                first = row
        for part in said.split("\n")[1:]:
            row += 1
            code[row] += part
    if depth:
        return found, head_end, first
    end()
    return found, head_end, len(code)


@lru_cache(8192)  # the sides of a hunk, and the patch files of a folder, say the same
def _statements(text: str) -> tuple[tuple[bytes, int, int, ast.stmt], ...] | None:
    """Digest, depth, block and node of what stands in a logical line; None if that is no statement."""
    if text.endswith(",") or (text[0] in _OPERATORS and text != "...") or len(text) > 20 * _LONGEST:
        return None  # an argument of a call or a part of a sum, far more likely than a tuple or a value alone
    block, whole = 0, text
    if text.startswith("elif") and _WORD.match(text)[0] == "elif":  # type: ignore[index]
        block, whole = ELIF, text[2:]
    is_head = whole.endswith(":")
    if is_head:
        word = _WORD.match(whole)
        whole += "\n case _: pass" if word and word[0] == "match" else " pass"
        whole += "\nfinally: pass" if word and word[0] == "try" else ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            body = ast.parse(whole).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    if any(isinstance(node, ast.Expr) and not isinstance(node.value, _DOING) for node in body):
        return None
    return tuple(_described(body, is_head, block))


def _described(body: list[ast.stmt], is_head: bool, block: int) -> Iterator[tuple[bytes, int, int, ast.stmt]]:
    for node in body:
        known = [bytes.fromhex(part.hash[: 2 * STATEMENT_BYTES]) for part in parts(node, "megatron")]
        for index, (digest, place) in enumerate(zip(known, nesting(node), strict=True)):
            if index == 0 or not is_head:
                yield digest, place % DEEPEST, block if index == 0 else place // DEEPEST, node


def _parameters(lines: list[str]) -> dict[str, int]:
    """The parameters in the lines of a head that begins above, with their lines; none if it is no such head."""
    last = lines[-1]
    if not last.rstrip().endswith(":") or len(last) - len(last.lstrip()) > _INDENT or len(lines) > 100:
        return {}
    try:
        function = ast.parse("def _(\n" + "\n".join(lines) + " pass\n").body[0]
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return {}
    spec = function.args if isinstance(function, ast.FunctionDef) else ast.arguments([], [], None, [], [], None, [])
    every = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *filter(None, (spec.vararg, spec.kwarg))]
    return {one.arg: one.lineno - 2 for one in every}
