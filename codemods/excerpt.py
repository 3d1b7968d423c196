"""The part of a file that changes: libcst parses that alone, with short texts in the place of the rest."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import groupby

from mcore_unpatch.codemods.changes import Asked, Make, Unwrap
from mcore_unpatch.editing.source import SUITES, Source, Suite, first_line, last_line

_ODD = re.compile(rb"\f|\r(?!\n)")  # line endings that libcst may not give back: then it is asked for the whole file
_SHORT = re.compile(rb'"(?:"")?of mcore-unpatch: \d+[\r\n]*"(?:"")?')
_IN_FULL = Make, Unwrap  # changes for which all is parsed that stands in a statement


class Excerpt:
    """A file with short texts in the place of statements that nothing changes: as many lines, parsed at once."""

    def __init__(self, source: Source, asked: Iterable[Asked] | None) -> None:
        self._source, self._instead = source, dict[bytes, bytes]()
        self._cuts: list[tuple[int, int]] = []  # the first and the last line of what is left out
        self.data = source.data
        if asked is not None and _ODD.search(source.data) is None:
            changes = [one.change for one in asked]
            self._lines = sorted({change.node.lineno for change in changes})
            self._full = {_place(change.node) for change in changes if isinstance(change, _IN_FULL)}
            self._shorten(source.tree.body)
            self.data = self._shortened()

    def holds(self, asked: Iterable[Asked]) -> bool:
        """Whether the statements of some changes are those of the file."""
        places = [(one.change.node, isinstance(one.change, _IN_FULL)) for one in asked]
        ranges = [(node.lineno, (in_full and node.end_lineno) or node.lineno) for node, in_full in places]
        return not any(first <= end and start <= last for start, end in ranges for first, last in self._cuts)

    def restored(self, data: bytes) -> bytes:
        """Code made from the excerpt, with the file's own statements."""
        return _SHORT.sub(lambda match: self._instead.get(match[0], match[0]), data) if self._cuts else data

    def _shorten(self, suite: Suite) -> None:
        """Leave out the statements of a suite that no change is in, neighbours together; look into the others."""
        for stays, some in groupby(suite, self._stays):
            nodes = list(some)
            if not stays:
                self._cuts.append((first_line(nodes[0]), self._end(nodes[-1])))
                continue
            for node in nodes:
                if _place(node) not in self._full:
                    for inner in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())):
                        for name in SUITES:
                            self._shorten(getattr(inner, name, []))

    def _stays(self, node: ast.stmt) -> bool:
        first, last = first_line(node), last_line(node)
        changes = bisect_right(self._lines, last) > bisect_left(self._lines, first)
        is_elif = isinstance(node, ast.If) and self._source.lines[first - 1].lstrip().startswith(b"elif")
        return changes or first == 1 or is_elif or not self._source.owns_lines(node)

    def _end(self, node: ast.stmt) -> int:
        """The last line of a statement, with the comments behind it that are indented as what stands in it."""
        end, lines = last_line(node), self._source.lines
        for number in range(end, len(lines)):
            text = lines[number].lstrip()
            if text and (text[:1] != b"#" or len(lines[number]) - len(text) <= node.col_offset):
                break
            end = number + 1 if text else end
        return end

    def _shortened(self) -> bytes:
        lines = list(self._source.lines)
        for number, (first, last) in enumerate(self._cuts):
            own = lines[first - 1 : last]
            ends = [line[len(line.rstrip(b"\r\n")) :] for line in own]
            indent = own[0][: len(own[0]) - len(own[0].lstrip())]
            name = b"of mcore-unpatch: %d" % number
            short = b'"%b"' % name if first == last else b'"""%b%b"""' % (name, b"".join(ends[:-1]))
            self._instead[short] = b"".join(own).removeprefix(indent).removesuffix(ends[-1])
            lines[first - 1 : last] = (indent + short + ends[-1]).splitlines(keepends=True)
        return b"".join(lines)


def _place(node: ast.stmt | ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset
