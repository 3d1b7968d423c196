"""Durable writes: what was said to be on disk is on disk, whole, after a crash."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from pathlib import Path


def digest(data: bytes) -> str:
    """A name for some content."""
    return hashlib.sha256(data).hexdigest()


def content_of(path: Path) -> bytes | None:
    """The bytes of a file, None if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


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
    if hasattr(os, "chown") and (facts.st_uid, facts.st_gid) != (path.stat().st_uid, path.stat().st_gid):
        with contextlib.suppress(PermissionError):  # only root may give files away
            os.chown(path, facts.st_uid, facts.st_gid)
            path.chmod(facts.st_mode & 0o7777)  # a change of owner drops the set-id bits


def publish(path: Path, data: bytes) -> None:
    """Give a file new content in one step: readers see the old one or the new one."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        create(temporary, data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable, where the system can: some refuse to open a folder, some to sync it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
