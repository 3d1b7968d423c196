"""Whether a migration was ever run here: asked by commands that only read, before anything heavier is loaded."""

from __future__ import annotations

import os
from pathlib import Path

NAME = "mcore-unpatch"


def user_state() -> Path:
    """The folder where programs keep what they must not forget."""
    value = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (value if value.is_absolute() else Path.home() / ".local" / "state").resolve()


def may_exist(top: Path) -> bool:
    """Whether a journal can lie in the git directory of a work tree, or in the user's state folder."""
    git_entry = top / ".git"
    return (
        git_entry.is_file()
        or (git_entry / NAME).exists()
        or (not git_entry.exists() and (user_state() / NAME).exists())
    )
