"""Where a scan reads its files: from disk, and some of them from memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from mcore_unpatch.records import field, record
from mcore_unpatch.repository import reading
from mcore_unpatch.scanner.sources.parsing import MAX_READ, TooLarge

_KEPT = 8 * 1024 * 1024  # bytes that are not read again


@record
class WorkTree:
    """Files on disk, as they were when first read."""

    top: Path
    _known: dict[str, bytes] = field(default_factory=dict, compare=False)
    _room: list[int] = field(default_factory=lambda: [_KEPT], compare=False)

    def read(self, path: str) -> bytes:
        """The bytes of a file; raises `Unreadable` for one of too many."""
        known = self._known.get(path)
        if known is not None:
            return known
        handle = reading.descriptor(self.top, path)
        try:  # not as a file of Python's, which asks the system twice as often
            if (size := os.fstat(handle).st_size) > MAX_READ:
                raise TooLarge(size)
            data = b"".join(iter(lambda: os.read(handle, size + 1), b""))
        finally:
            os.close(handle)
        if (
            size <= self._room[0]
        ):  # the first ones stay: all are read in the same order, and of the last ones none would be
            self._room[0] -= size
            self._known[path] = data
        return data

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        return reading.exists(self.top, path)

    def size(self, path: str) -> int:
        """Bytes of a file, 0 if it is gone."""
        try:
            return os.stat(f"{self.top}/{path}").st_size  # noqa: PTH116
        except OSError:
            return 0


@record
class Overlay:
    """Reads some files from memory."""

    below: Callable[[str], bytes]
    contents: Mapping[str, bytes]

    def read(self, path: str) -> bytes:
        """The bytes of a file."""
        return self.contents[path] if path in self.contents else self.below(path)
