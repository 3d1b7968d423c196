"""One writer at a time: a lock that the system itself drops when its process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.migrate import files
from mcore_unpatch.repository.paths import shown

_CAREFUL = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def exclusive(file: Path) -> Iterator[None]:
    """Hold the lock; raises `UsageError` at once where another process holds it."""
    try:
        files.own_folder(file.parent)
    except OSError as error:
        raise UsageError(f"cannot use {shown(file.parent)}: {error.strerror}; nothing was changed") from None
    try:
        handle = os.open(file, os.O_RDWR | os.O_CREAT | _CAREFUL, 0o600)
    except OSError as error:
        raise UsageError(f"cannot create the lock {shown(file)}: {error.strerror}") from None
    try:
        try:
            files.check_own(file)
        except OSError as error:
            raise UsageError(f"cannot use the lock {shown(file)}: {error.strerror}; delete it") from None
        try:  # a record lock, unlike flock, does not live on in a forked worker
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            owner = os.read(handle, 32).decode(errors="replace").strip()
            raise UsageError(
                f"another unpatch is running here (process {owner or 'unknown'}, lock {file}); nothing was written. "
                "Try again when it has finished."
            ) from None
        os.ftruncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
        yield
    finally:
        os.close(handle)
