"""Files that were parsed, kept for whoever asks next: the scan, the codemods, the check of what they made."""

from __future__ import annotations

import ast
from collections import OrderedDict
from typing import Generic, NamedTuple, TypeVar

from mcore_unpatch.sources.parsing import parse

T = TypeVar("T")

# Bytes of source up to which trees are kept; these take some forty times of that.
_MOST = 1_400_000


class RecentValues(Generic[T]):
    """Values by path, the last ones that were asked for, up to so many bytes of source."""

    def __init__(self, most: int) -> None:
        self._most, self._bytes = most, 0
        self._values: OrderedDict[str, tuple[T, int]] = OrderedDict()

    def get(self, path: str) -> T | None:
        """What is kept for a path."""
        if path not in self._values:
            return None
        self._values.move_to_end(path)
        return self._values[path][0]

    def clear(self) -> None:
        """Let go of all."""
        self._bytes = 0
        self._values.clear()

    def keep(self, path: str, value: T, size: int) -> T:
        """Keep a value, and let go of the oldest ones."""
        if path in self._values:
            self._bytes -= self._values.pop(path)[1]
        self._values[path] = value, size
        self._bytes += size
        while self._bytes > self._most and len(self._values) > 1:
            self._bytes -= self._values.popitem(last=False)[1][1]
        return value


class _ParsedFile(NamedTuple):
    data: bytes
    tree: ast.Module


class Parsed:
    """Trees. Who asks brings the bytes: with other bytes it is another file."""

    def __init__(self) -> None:
        self._files: RecentValues[_ParsedFile] = RecentValues(_MOST)

    def tree(self, path: str, data: bytes) -> ast.Module:
        """The syntax tree of a file; raises `Unreadable`."""
        known = self._files.get(path)
        if known is None or known.data != data:
            known = self._files.keep(path, _ParsedFile(data, parse(data)), len(data))
        return known.tree
