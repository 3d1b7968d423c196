"""What a path says by itself: where it is, seen from the user, and whether it is a test."""

from __future__ import annotations

import os
from pathlib import Path

from mcore_unpatch.repository.printable import shown


def relative(path: Path, start: Path) -> str:
    """A path as seen from a folder, with forward slashes."""
    return Path(os.path.relpath(path, start)).as_posix()


def from_here(path: Path) -> str:
    """A path as people read it: relative to where they stand, or whole where that is shorter; nothing in it acts."""
    return shown(min(relative(path, Path.cwd()), path.as_posix(), key=len))


def is_test(path: str) -> bool:
    """Whether a file (posix, relative to the project's root) is a test or a helper of tests."""
    *folders, name = path.split("/")
    return (
        name.startswith(("test_", "conftest")) or name.endswith("_test.py") or "tests" in folders or "test" in folders
    )
