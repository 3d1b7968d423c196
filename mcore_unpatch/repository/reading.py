"""How a file of a scanned tree is opened: a regular file that really lies in the tree, or an error; never a wait.

And how a small file of ours is written: whole or not at all, and never through a link.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from functools import lru_cache
from pathlib import Path

from mcore_unpatch.errors import UsageError

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}


def read(file: Path) -> bytes:
    """The bytes of a regular file, through links if there are some; raises `OSError` for anything else."""
    _refuse(file.stat().st_mode, file)  # before it is opened: opening a device can set it going
    return _read(os.open(file, _FLAGS), file)


def read_own(file: Path) -> bytes:
    """The bytes of a file that must be no link; raises `OSError` for anything else."""
    _refuse(file.lstat().st_mode, file)
    return _read(os.open(file, _FLAGS | os.O_NOFOLLOW), file)


def read_below(folder: Path, file: Path) -> bytes:
    """The bytes of a file that really lies below a folder; raises `OSError` for anything else."""
    return _read(descriptor(folder, os.path.relpath(file, folder)), file)


def descriptor(top: str | Path, path: str) -> int:
    """An open regular file, by its path relative to the top; raises `OSError`. Links may lead to it within the top."""
    full = f"{top}/{path}"
    try:
        if not _lies_inside(str(top), os.path.dirname(path)):  # noqa: PTH120 - thousands of calls
            raise _leads_out(full)
        handle = os.open(full, _FLAGS | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.EINVAL, "a socket, not a regular file", full) from None
        if error.errno != errno.ELOOP:
            raise
        if not _lies_inside(str(top), path):
            raise _leads_out(full) from None
        handle = os.open(os.path.realpath(full), _FLAGS | os.O_NOFOLLOW)
    try:
        _refuse(os.fstat(handle).st_mode, full)
    except OSError:
        os.close(handle)
        raise
    return handle


def exists(top: str | Path, path: str) -> bool:
    """Whether there is such a file or folder that really lies below the top."""
    try:
        mode = os.lstat(f"{top}/{path}").st_mode
    except (OSError, ValueError):
        return False
    inside = path if stat.S_ISLNK(mode) else os.path.dirname(path)  # noqa: PTH120
    return _lies_inside(str(top), inside) and os.path.exists(f"{top}/{path}")  # noqa: PTH110


def boundary(folder: Path) -> Path:
    """The folder that links of a project file must not lead out of: its repository, or where it stands."""
    return next((above for above in (folder, *folder.parents) if os.path.lexists(above / ".git")), folder)


def kind(path: str | Path) -> str | None:
    """What stands where a file is expected, in words; None for a file, a folder, or nothing. Links are followed."""
    try:
        return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode))  # noqa: PTH116
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=65_536)
def _lies_inside(top: str, path: str) -> bool:
    real_top = os.path.realpath(top)
    real = os.path.realpath(f"{top}/{path}")
    return real == real_top or real.startswith(real_top.rstrip("/") + "/")


def _read(handle: int, file: Path) -> bytes:
    with open(handle, "rb") as opened:
        _refuse(os.fstat(handle).st_mode, file)
        return opened.read()


def _refuse(mode: int, path: str | Path) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, f"{_KINDS.get(stat.S_IFMT(mode), 'something')}, not a regular file", str(path))


def _leads_out(path: str) -> OSError:
    return OSError(errno.EPERM, "a link leads out of the repository", path)


def replace_file(file: Path, content: str | bytes) -> None:
    """Write a text or bytes; raises `UsageError` where the file is a link or anything else that is no plain file."""
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise UsageError(f"{file} is no plain file: it is not written.")
    try:
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with os.fdopen(handle, "wb") as out:
            out.write(content.encode() if isinstance(content, str) else content)
        Path(temporary).chmod(file.stat().st_mode & 0o777 if file.exists() else 0o644)
        Path(temporary).replace(file)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from None
