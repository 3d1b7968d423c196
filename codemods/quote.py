"""Findings made of the nodes of a file."""

from __future__ import annotations

import ast

from mcore_unpatch.codemods.source import Source
from mcore_unpatch.findings import Finding
from mcore_unpatch.paths import is_test
from mcore_unpatch.scanner.sources.quoting import Text


class Quote:
    """Makes findings of the nodes of one file."""

    def __init__(self, source: Source) -> None:
        self.path, self.source = source.path, source
        self._text: Text | None = None

    def finding(
        self,
        node: ast.stmt | ast.expr,
        rule: str,
        shape: str,
        seam: str,
        target: str,
        message: str,
        replacement: str,
        end: int = 0,
    ) -> Finding:
        """A finding at a node."""
        if self._text is None:
            self._text = Text([self.source.line(number) for number in range(1, len(self.source.lines) + 1)])
        end_line = end or node.end_lineno or node.lineno
        return Finding(
            rule=rule,
            path=self.path,
            line=node.lineno,
            column=self._text.characters(node.lineno, node.col_offset) + 1,
            end_line=end_line,
            target=target,
            shape=shape,
            seam=seam,
            confidence="certain",
            temporary=False,
            fix=None,
            message=message,
            replacement=replacement,
            in_test=is_test(self.path),
            source=self._text.between(node.lineno, end_line),
        )
