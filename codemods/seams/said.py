"""What was said in comments and docstrings of code that goes: it moves to what comes instead."""

from __future__ import annotations

import ast
import io
import textwrap
import tokenize

from mcore_unpatch.editing.source import Source, first_line, last_line

_PRAGMAS = ("# type:", "# noqa", "# pylint", "# pragma", "# fmt", "# pyright", "# mypy")


class CommentCollector:
    """Comments by line, those for tools left out."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._comments: dict[int, list[str]] = {}

    def lines(self) -> list[str]:
        """The comments in order."""
        return [comment for _, comments in sorted(self._comments.items()) for comment in comments]

    def between(self, first: int, last: int) -> None:
        """The comments on some lines."""
        text = textwrap.dedent(self.source.text_of(self.source.line_span(first, last)))
        for token in tokenize.generate_tokens(io.StringIO(text, newline=None).readline):
            if token.type == tokenize.COMMENT and not token.string.startswith(_PRAGMAS):
                self._comments.setdefault(first + token.start[0] - 1, []).append(token.string)

    def inside(self, statement: ast.stmt) -> None:
        """The comments within a statement of several lines; the one behind it stays where it is."""
        if last_line(statement) > first_line(statement):
            self.between(first_line(statement), last_line(statement))
            self._comments.pop(last_line(statement), None)
