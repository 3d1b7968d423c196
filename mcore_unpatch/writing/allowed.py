"""Whether a work tree may be written to: nothing uncommitted, under version control, nothing read-only."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.repository import git
from mcore_unpatch.repository.paths import from_here

_LISTED = 20  # files with uncommitted changes


def refuse_unsafe(root: Path, top: Path, paths: Sequence[str], allow_dirty: bool, allow_no_vcs: bool) -> None:
    """Raise `UsageError` for uncommitted work below `root`, outside of git, and for read-only files.

    `paths` are the files to be written, relative to `top`; one that git does not track counts as uncommitted.
    """
    _refuse_unwritable(top, paths)
    try:
        git.work_tree(top)
    except git.GitError as error:
        if not allow_no_vcs:
            raise UsageError(_no_vcs(top, str(error))) from None
        return
    if allow_dirty:
        return
    tracked = set(git.names(git.run(top, "ls-files", "-z")))
    dirty = dict.fromkeys(git.changed_files(root, top), "changed")
    dirty |= {path: "not tracked" for path in paths if path not in tracked}
    if dirty:
        lines = [f"  {from_here(top / path)} ({why})" for path, why in sorted(dirty.items())]
        if len(lines) > _LISTED:
            lines[_LISTED:] = [f"  ... and {len(lines) - _LISTED} more"]
        raise UsageError(
            "The work tree has uncommitted changes; nothing was written:\n"
            + "\n".join(lines)
            + "\nCommit or stash them, or use --allow-dirty to migrate on top of them."
        )


def _no_vcs(top: Path, reason: str) -> str:
    if any((folder / ".git").exists() for folder in (top, *top.parents)):
        return f"git cannot read this repository: {reason}\nFix that, or use --allow-no-vcs to write without git."
    return (
        f"{top} is not a git repository, so the changes could not be reviewed or reverted. Nothing was written. "
        "Use --allow-no-vcs to write anyway; `unpatch undo` reverts it."
    )


def _refuse_unwritable(top: Path, paths: Iterable[str]) -> None:
    locked = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # found out again, and told, when its turn comes
            if not (top / path).stat().st_mode & 0o222 or not os.access(top / path, os.W_OK):
                locked.append(from_here(top / path))
    if locked:
        listed = "".join(f"\n  {path}" for path in locked)
        raise UsageError(f"These files are read-only; nothing was written. Make them writable or exclude them:{listed}")
