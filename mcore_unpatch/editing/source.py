"""One file under edit: its bytes, its syntax tree, and the way from positions of the tree to bytes and back."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

from mcore_unpatch.scanner.sources.nodes import children, first_line as first_line, walk
from mcore_unpatch.scanner.sources.parsed import Parsed

Node = TypeVar("Node", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Suite = list[ast.stmt]


class Span(NamedTuple):
    """Bytes [start, end)."""

    start: int
    end: int

    @classmethod
    def at(cls, offset: int) -> Span:
        """No bytes: where something is to be inserted."""
        return cls(offset, offset)


class Source:
    """A parsed file. Lines are counted from 1, as in `ast`."""

    def __init__(self, path: str, data: bytes, parsed: Parsed | None = None) -> None:
        self.path, self.data = path, data
        self.tree = (parsed or Parsed()).tree(path, data)
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        bom = encoding == "utf-8-sig"
        self.encoding = "utf-8" if bom else encoding
        self.lines = data.splitlines(keepends=True)
        self._starts = [0, *accumulate(map(len, self.lines))]
        self._bom = 3 if bom else 0
        ending = next((line for line in self.lines if line.endswith((b"\n", b"\r"))), b"\n")
        self._of_kinds: dict[tuple[type[ast.AST], ...], list[Any]] = {}
        self.newline = "\r\n" if ending.endswith(b"\r\n") else "\r" if ending.endswith(b"\r") else "\n"

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node, as `ast.walk` gives them."""
        return list(walk(self.tree))

    def every(self, *kinds: type[Node]) -> list[Node]:
        """The nodes of some kinds, in the same order."""
        if kinds not in self._of_kinds:
            self._of_kinds[kinds] = [node for node in self.nodes if isinstance(node, kinds)]
        return self._of_kinds[kinds]

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The node above each node."""
        return {child: node for node in self.nodes for child in children(node)}

    @cached_property
    def home(self) -> dict[int, Suite]:
        """The suite that a statement stands in, by the statement's id: a body, a branch, a handler."""
        fields = (getattr(node, name, None) for node in self.nodes for name in ("body", "orelse", "finalbody"))
        return {id(node): suite for suite in fields if isinstance(suite, list) for node in suite}

    @cached_property
    def starting(self) -> dict[tuple[int, int], ast.stmt | ast.expr]:
        """The outermost statement or expression that begins at a line and a column."""
        nodes: dict[tuple[int, int], ast.stmt | ast.expr] = {}
        for node in self.nodes:  # those around another come first
            if isinstance(node, ast.stmt | ast.expr):
                nodes.setdefault((node.lineno, node.col_offset), node)
        return nodes

    @cached_property
    def mentions(self) -> dict[str, list[ast.AST]]:
        """The nodes that say a name, in whatever way."""
        found: dict[str, list[ast.AST]] = {}
        for node in self.nodes:
            for name in mentioned(node):
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def width(self) -> int:
        """The width of lines: what the file itself keeps to."""
        # Strings and comments are longer than the limit in many places, so lines with them do not count.
        lines = [self.line(number) for number in {node.lineno for node in self.every(ast.stmt)}]
        code = [len(line) for line in lines if len(line) <= 120 and not any(sign in line for sign in "#'\"")]
        return next(limit for limit in (88, 100, 120) if max(code, default=0) <= limit)

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, the innermost first."""
        while (above := self.parents.get(node)) is not None:
            yield above
            node = above

    def function_of(self, node: ast.AST) -> Function | None:
        """The innermost function around a node."""
        return next((around for around in self.above(node) if isinstance(around, Function)), None)

    def offset(self, line: int, column: int) -> int:
        """The byte of a position given as `ast` gives it: columns in UTF-8 bytes, the byte order mark not counted."""
        start = self._starts[line - 1] + (self._bom if line == 1 else 0)
        if self.encoding == "utf-8" or self.lines[line - 1].isascii():
            return start + column
        text = self.lines[line - 1].decode(self.encoding).encode()[:column].decode()
        return start + len(text.encode(self.encoding))

    def span(self, node: ast.stmt | ast.expr | ast.alias | ast.keyword | ast.arg) -> Span:
        """The bytes of a node, decorators left out."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return Span(self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset))

    def text_of(self, span: Span) -> str:
        """The text of some bytes."""
        return self.data[span.start : span.end].decode(self.encoding)

    def text(self, node: ast.stmt | ast.expr | ast.keyword) -> str:
        """The text of a node."""
        return self.text_of(self.span(node))

    def line(self, number: int) -> str:
        """The text of a line, without its ending."""
        return self.lines[number - 1].decode(self.encoding).rstrip("\r\n").removeprefix("\ufeff")

    def encode(self, text: str) -> bytes:
        """Text of ours, with the file's line endings and encoding."""
        return text.replace("\n", self.newline).encode(self.encoding)

    def line_span(self, first: int, last: int) -> Span:
        """The bytes of whole lines, the last line's ending included."""
        start = self._starts[first - 1] + (self._bom if first == 1 else 0)
        return Span(start, self._starts[min(last, len(self.lines))])

    def indentation(self, node: ast.stmt) -> str:
        """The white space before a statement."""
        text = self.line(node.lineno)
        return text[: len(text) - len(text.lstrip())]

    def owns_lines(self, node: ast.stmt) -> bool:
        """Whether a statement shares its lines with nothing but a comment."""
        first, last = first_line(node), last_line(node)
        # A decorator's `@` stands in the column of its `def`.
        before = self.data[self.line_span(first, first).start : self.offset(first, node.col_offset)]
        after = self.data[self.span(node).end : self.line_span(last, last).end].strip()
        return not before.strip() and (not after or after.startswith(b"#"))

    def is_blank(self, number: int) -> bool:
        """Whether a line holds nothing."""
        return not self.lines[number - 1].strip()

    def is_comment(self, number: int) -> bool:
        """Whether a line holds a comment alone."""
        return self.line(number).lstrip().startswith("#")

    def first_with_comments(self, node: ast.stmt) -> int:
        """The first line of a statement, or of the comment right above it; the head of a file is nobody's comment."""
        line = first_line(node)
        while line > 1 and self.is_comment(line - 1):
            line -= 1
        return first_line(node) if line == 1 else line


def mentioned(node: ast.AST) -> tuple[str, ...]:
    """What one node names, in whatever way."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Global | ast.Nonlocal):
        return tuple(node.names)
    return (node.value,) if isinstance(node, ast.Constant) and isinstance(node.value, str) else ()


def last_line(node: ast.stmt) -> int:
    """The last line of a statement."""
    return node.end_lineno or node.lineno


def lines_of(node: ast.stmt) -> range:
    """The lines of a statement, its decorators included."""
    return range(first_line(node), last_line(node) + 1)
