"""Durable writes, by one process at a time: what was said to be on disk is on disk, whole, after a crash."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.repository.paths import shown


def digest(data: bytes) -> str:
    """A name for some content."""
    return hashlib.sha256(data).hexdigest()


def check_own(folder: Path) -> None:
    """Raise `OSError` for what is not a folder of ours: a link to one is somebody else's."""
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "it is a link, belongs to another user, or is no folder", str(folder))


def create(path: Path, data: bytes, mode: int = 0o600, owner: tuple[int, int] = (-1, -1)) -> None:
    """Write a file anew, and wait until the disk has it."""
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        with contextlib.suppress(PermissionError):  # only root may give files away
            os.fchown(file.fileno(), *owner)
        os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable, where the system can: some refuse to open a folder, some to sync it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the lock in a folder of our own, which is made; raises `UsageError` where another process holds it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_own(folder)
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise UsageError(f"cannot use {shown(error.filename)}: {error.strerror}; nothing was changed") from None
    with os.fdopen(handle, "rb"):
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike flock, it does not live on in a forked worker
        except OSError as error:
            why = f"another unpatch is running here: {shown(folder / 'lock')}: {error.strerror}"
            raise UsageError(f"{why}; nothing was changed") from None
        yield
