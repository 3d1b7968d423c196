"""One writer at a time: a lock that the system itself drops when its process ends, however it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mcore_unpatch.errors import UsageError


@contextmanager
def exclusive(file: Path) -> Iterator[None]:
    """Hold the lock; raises `UsageError` at once where another process holds it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise UsageError(f"cannot create the lock {file}: {error.strerror}") from None
    try:
        if not _acquire(handle):
            owner = os.read(handle, 32).decode(errors="replace").strip()
            raise UsageError(
                f"another unpatch is at work here (process {owner or 'unknown'}, lock {file}): "
                "nothing was changed, run again when it has ended"
            )
        os.ftruncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
        yield
    finally:
        os.close(handle)


if sys.platform == "win32":  # pragma: no cover - the other branch is what the tests run
    import msvcrt

    def _acquire(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _acquire(handle: int) -> bool:
        # A record lock, unlike flock, does not live on in a forked worker.
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        return True
