"""Git repositories made for a test."""

import os
import subprocess
from pathlib import Path

from checking import Source, write_files

GIT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


class Repository:
    """A git repository with a branch `main`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        """Run git here and return what it says."""
        done = subprocess.run(
            ["git", *arguments], cwd=self.path, env={**os.environ, **GIT}, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def write(self, source: Source) -> None:
        """Write files without committing them."""
        write_files(self.path, source)

    def commit(self, source: Source | None = None) -> str:
        """Write files, commit everything, and return the commit."""
        if source is not None:
            self.write(source)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message=change")
        return self.git("rev-parse", "HEAD")
