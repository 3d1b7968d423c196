"""Files that were read and parsed, kept for whoever asks next: the scan, the codemods, the check of what they made."""

from __future__ import annotations

import ast
from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

from mcore_unpatch.scanner.sources import prefilter
from mcore_unpatch.scanner.sources.building import build
from mcore_unpatch.scanner.sources.parsing import parse
from mcore_unpatch.scanner.sources.scopes import ModuleModel

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

    def demote(self, path: str) -> None:
        """Let go of what is kept for a path first."""
        if path in self._values:
            self._values.move_to_end(path, last=False)

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


@dataclass(slots=True, eq=False)
class _ParsedFile:
    data: bytes
    tree: ast.Module
    model: ModuleModel | None = None


class Parsed:
    """Trees and scopes. Who asks brings the bytes: with other bytes it is another file."""

    def __init__(self, every_call: bool = False) -> None:
        self.files: RecentValues[_ParsedFile] = RecentValues(_MOST)
        self._every_call = every_call  # not only on the lines where the text says that one may matter

    def tree(self, path: str, data: bytes) -> ast.Module:
        """The syntax tree of a file; raises `Unreadable`."""
        return self._file(path, data).tree

    def model(self, path: str, data: bytes) -> ModuleModel:
        """The scopes of a file; raises `Unreadable`."""
        file = self._file(path, data)
        if file.model is None:
            every = range(1, data.count(b"\n") + 2) if self._every_call else None
            file.model = build(path, data, file.tree, every or prefilter.call_lines(data))
        return file.model

    def _file(self, path: str, data: bytes) -> _ParsedFile:
        known = self.files.get(path)
        if known is None or known.data != data:
            known = self.files.keep(path, _ParsedFile(data, parse(data)), len(data))
        return known
