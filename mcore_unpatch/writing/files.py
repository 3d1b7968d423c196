"""Durable writes, by one process at a time: what was said to be on disk is on disk, whole, after a crash."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.repository.paths import shown

_CAREFUL = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def digest(data: bytes) -> str:
    """A name for some content."""
    return hashlib.sha256(data).hexdigest()


def own_folder(folder: Path) -> None:
    """Make a folder for us alone; raises `OSError` where something else stands in its place."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_own(folder)


def check_own(path: Path) -> None:
    """Raise `OSError` for a file or folder that is a link, another user's, or also somebody else's by a second name."""
    facts = path.lstat()
    if stat.S_ISLNK(facts.st_mode):
        raise OSError(errno.EPERM, "it is a link", str(path))
    if not stat.S_ISDIR(facts.st_mode) and (not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1):
        raise OSError(errno.EPERM, "it is not a file of its own", str(path))
    if facts.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "it belongs to another user", str(path))


def create(path: Path, data: bytes) -> None:
    """Write a file that does not exist yet, and wait until the disk has it."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def create_like(model: Path, path: Path, data: bytes) -> None:
    """The same, with mode, owner and extended attributes of another file, but not its times."""
    create(path, data)
    shutil.copystat(model, path)
    os.utime(path)
    facts = model.stat()
    if (facts.st_uid, facts.st_gid) != (path.stat().st_uid, path.stat().st_gid):
        with contextlib.suppress(PermissionError):  # only root may give files away
            os.chown(path, facts.st_uid, facts.st_gid)
            path.chmod(facts.st_mode & 0o7777)  # a change of owner drops the set-id bits


def publish(path: Path, data: bytes) -> None:
    """Give a file new content in one step: readers see the old one or the new one."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    create(temporary, data)
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable, where the system can: some refuse to open a folder, some to sync it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def exclusive(file: Path) -> Iterator[None]:
    """Hold the lock; raises `UsageError` at once where another process holds it."""
    try:
        own_folder(file.parent)
        handle = os.open(file, os.O_RDWR | os.O_CREAT | _CAREFUL, 0o600)
    except OSError as error:
        raise UsageError(f"cannot use {shown(error.filename or file)}: {error.strerror}; nothing was changed") from None
    try:
        _lock(handle, file)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, file: Path) -> None:
    try:
        check_own(file)
        # A record lock, unlike flock, does not live on in a forked worker.
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
    except (BlockingIOError, PermissionError) as error:
        if error.filename:
            raise UsageError(f"cannot use the lock {shown(file)}: {error.strerror}; delete it") from None
        owner = os.read(handle, 32).decode(errors="replace").strip()
        raise UsageError(
            f"another unpatch is running here (process {owner or 'unknown'}, lock {file}); nothing was written. "
            "Try again when it has finished."
        ) from None
    except OSError as error:
        raise UsageError(f"cannot use the lock {shown(file)}: {error.strerror}; nothing was changed") from None
