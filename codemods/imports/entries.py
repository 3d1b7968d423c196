"""The names of one import statement with the comments beside them, and the text of a statement made of such names."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass

from mcore_unpatch.codemods.source import Source

_MODULE = re.compile(r"(from[\s\\]+)([.\w]+)(?=[\s\\]+import\b)")


@dataclass(frozen=True, slots=True)
class Entry:
    """`name as alias`, with the comment lines above it, the comment behind it, and lines below the last of all."""

    name: str
    alias: str | None = None
    above: tuple[str, ...] = ()
    behind: str = ""
    below: tuple[str, ...] = ()

    @property
    def has_comments(self) -> bool:
        """Whether anything is said about it."""
        return bool(self.above or self.behind or self.below)

    @property
    def text(self) -> str:
        """As it is written in an import statement."""
        return f"{self.name} as {self.alias}" if self.alias else self.name


@dataclass(frozen=True, slots=True)
class Layout:
    """How a statement is laid out: over several lines or one, its indentation, and the longest line allowed."""

    indent: str = ""
    limit: int = 120
    multiline: bool = False
    step: str = "    "
    trailing: str = ""


def entries(source: Source, node: ast.ImportFrom) -> list[Entry]:
    """The names of a statement, with their comments."""
    comments: dict[int, str] = {}
    own_line: set[int] = set()
    text = source.text_of(source.span(node))
    for token in tokenize.generate_tokens(io.StringIO(text, newline=None).readline):
        if token.type == tokenize.COMMENT:
            line = node.lineno + token.start[0] - 1
            comments[line] = token.string
            if not token.line[: token.start[1]].strip():
                own_line.add(line)
    found: list[Entry] = []
    last_used = node.lineno - 1
    for index, alias in enumerate(node.names):
        lines = range(last_used + 1, alias.lineno)
        above = tuple(comments[line] for line in lines if line in own_line or (line in comments and not index))
        following = node.names[index + 1] if index + 1 < len(node.names) else None
        alone = following is None or following.lineno > alias.lineno
        behind = comments.get(alias.lineno, "") if alone and alias.lineno not in own_line else ""
        below = () if following else tuple(comments[line] for line in sorted(own_line) if line > alias.lineno)
        found.append(Entry(alias.name, alias.asname, above, behind, below))
        last_used = alias.lineno
    return found


def layout_of(source: Source, node: ast.ImportFrom | ast.Import, limit: int) -> Layout:
    """How a statement is laid out now."""
    indent = source.indentation(node)
    multiline = (node.end_lineno or node.lineno) > node.lineno
    step = "    "
    if multiline and node.names[0].lineno > node.lineno:
        line = source.line(node.names[0].lineno)
        step = line[: len(line) - len(line.lstrip())].removeprefix(indent) or step
    return Layout(indent, limit, multiline, step, trailing_comment(source, node))


def trailing_comment(source: Source, node: ast.stmt) -> str:
    """The comment behind a statement."""
    end = source.span(node).end
    last = node.end_lineno or node.lineno
    rest = source.data[end : source.line_span(last, last).end].decode(source.encoding).strip()
    return rest if rest.startswith("#") else ""


def render(module: str, names: list[Entry], layout: Layout) -> str:
    """`from module import names`, one line if that fits and nothing asks for more; without indentation or newline."""
    comments = any(entry.has_comments for entry in names)
    line = f"from {module} import {', '.join(entry.text for entry in names)}"
    tail = f"  {layout.trailing}" if layout.trailing else ""
    if not comments and not layout.multiline and len(layout.indent + line) <= layout.limit:
        return line + tail
    inner = layout.indent + layout.step
    rows = []
    for entry in names:
        rows += [f"{inner}{comment}" for comment in entry.above]
        rows.append(f"{inner}{entry.text}," + (f"  {entry.behind}" if entry.behind else ""))
        rows += [f"{inner}{comment}" for comment in entry.below]
    return "\n".join([f"from {module} import (", *rows, f"{layout.indent})"]) + tail


def with_module(source: Source, node: ast.ImportFrom, module: str) -> str:
    """The text of a statement with another module and nothing else changed."""
    text = source.text_of(source.span(node))
    return _MODULE.sub(lambda match: match[1] + module, text, count=1).replace(source.newline, "\n")
