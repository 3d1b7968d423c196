"""The few questions put to git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


class GitError(Exception):
    """Git is missing or said no; the message is its own."""


def run(folder: Path, *arguments: str, stdin: bytes | None = None) -> bytes:
    """The standard output of `git -C folder ...`; raises `GitError`."""
    command = ["git", "-C", str(folder), "-c", "core.quotepath=off", *arguments]
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, check=False)
    except FileNotFoundError:
        raise GitError("git is not installed") from None
    if done.returncode:
        raise GitError(done.stderr.decode(errors="replace").strip() or f"git {arguments[0]} failed")
    return done.stdout


def toplevel(folder: Path) -> Path | None:
    """The root of the work tree around a folder; None outside of one, or without git."""
    if "GIT_DIR" not in os.environ and not any((above / ".git").exists() for above in (folder, *folder.parents)):
        return None  # told without starting git
    try:
        return Path(run(folder, "rev-parse", "--show-toplevel").decode().strip())
    except GitError:
        return None


def is_ignored(path: Path) -> bool:
    """Whether git ignores a path."""
    try:
        run(path.parent, "check-ignore", "-q", str(path))
    except GitError:
        return False
    return True


def listed_files(folder: Path, git_dir: Path | None = None) -> list[str]:
    """Tracked and untracked files below a folder that no ignore rule hides, relative to it."""
    where = ["--git-dir", str(git_dir), "--work-tree", str(folder)] if git_dir else []
    output = run(
        folder, *where, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate", "--", "."
    )
    return [name for name in output.decode(errors="surrogateescape").split("\0") if name]


def make_empty(folder: Path) -> Path:
    """A repository that knows no file: it applies the ignore rules of a folder that is under no version control."""
    run(folder, "init", "--quiet", "--bare", "empty.git")
    return folder / "empty.git"
