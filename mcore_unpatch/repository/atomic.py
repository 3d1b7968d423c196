"""Writing a small file of ours: whole or not at all, and never through a link."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from mcore_unpatch.errors import UsageError


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
