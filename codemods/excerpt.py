"""A file for libcst with short texts in the place of statements that nothing changes: as many lines, parsed at once."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable

from mcore_unpatch.codemods.changes import Asked
from mcore_unpatch.editing.source import Source, first_line, last_line

_ODD = re.compile(rb"\f|\r(?!\n)")  # line endings that libcst may not give back: then it is asked for the whole file


class Excerpt:
    """The bytes to parse, and the way back to those of the file."""

    def __init__(self, source: Source, asked: Iterable[Asked] | None) -> None:
        self._source, self._instead = source, dict[bytes, bytes]()
        self._starts = [first_line(node) for node in source.tree.body]
        self.whole = asked is None or _ODD.search(source.data) is not None
        self.real = set() if asked is None else set(map(self._index, asked))
        self.data = source.data if self.whole else self._shortened()

    def holds(self, asked: Iterable[Asked]) -> bool:
        """Whether the statements of some changes are those of the file."""
        return self.whole or self.real.issuperset(map(self._index, asked))

    def restored(self, data: bytes) -> bytes:
        """Code made from the excerpt, with the file's own statements."""
        for short, own in self._instead.items():
            data = data.replace(short, own, 1)
        return data

    def _index(self, asked: Asked) -> int:
        return max(0, bisect_right(self._starts, asked.change.node.lineno) - 1)

    def _shortened(self) -> bytes:
        source, lines = self._source, list(self._source.lines)
        body = source.tree.body
        used = Counter(line for node in body for line in {first_line(node), last_line(node)})
        for index, node in enumerate(body):
            first, last = first_line(node), last_line(node)
            if index in self.real or first == 1 or used[first] > 1 or used[last] > 1:
                continue
            own = lines[first - 1 : last]
            ends = [line[len(line.rstrip(b"\r\n")) :] for line in own]
            name = b"of mcore-unpatch: %d" % index
            short = b'"%b"' % name if first == last else b'"""%b%b"""' % (name, b"".join(ends[:-1]))
            self._instead[short] = b"".join(own).removesuffix(ends[-1])
            lines[first - 1 : last] = (short + ends[-1]).splitlines(keepends=True)
        return b"".join(lines)
