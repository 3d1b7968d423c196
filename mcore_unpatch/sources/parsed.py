"""Files that were parsed, kept for whoever asks next: the scan, the codemods, the check of what they made."""

from __future__ import annotations

import ast
from typing import Generic, TypeVar

from mcore_unpatch.sources.parsing import parse

T = TypeVar("T")
_MOST = 1_400_000  # bytes of source up to which trees are kept; these take some forty times of that


class RecentValues(Generic[T]):
    """Values by path, the last ones that were asked for, up to so many bytes of source."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[str, tuple[T, int]] = {}  # the one asked for last stands last

    def get(self, path: str) -> T | None:
        """What is kept for a path."""
        if path not in self._values:
            return None
        self._values[path] = self._values.pop(path)
        return self._values[path][0]

    def clear(self) -> None:
        """Let go of all."""
        self._values.clear()

    def keep(self, path: str, value: T, size: int) -> T:
        """Keep a value, and let go of the oldest ones."""
        self._values.pop(path, None)
        self._values[path] = value, size
        held = sum(size for _, size in self._values.values())
        while held > self._most and len(self._values) > 1:
            held -= self._values.pop(next(iter(self._values)))[1]
        return value


class Parsed:
    """Trees. Who asks brings the bytes: with other bytes it is another file."""

    def __init__(self) -> None:
        self._files: RecentValues[tuple[bytes, ast.Module]] = RecentValues(_MOST)

    def tree(self, path: str, data: bytes) -> ast.Module:
        """The syntax tree of a file; raises `Unreadable`."""
        known = self._files.get(path)
        if known is None or known[0] != data:
            known = self._files.keep(path, (data, parse(data)), len(data))
        return known[1]
