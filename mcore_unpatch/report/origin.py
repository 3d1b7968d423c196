"""Where a report comes from: the repository, its commit, and the address of a line on GitHub or GitLab."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from mcore_unpatch.repository import git

_REMOTE = re.compile(r"(?:(?:https?|ssh|git)://)?(?:[^@/\s]+@)?([\w.-]+)(?::\d+)?[/:]([\w./~-]+?)(?:\.git)?/?\s*")


@dataclass(frozen=True, slots=True)
class Origin:
    """A repository at a commit; `blob` is where its files stand, if the forge is known and has the commit."""

    name: str
    commit: str = ""
    blob: str = ""

    def link(self, path: str, line: int) -> str:
        """The address of a line, by its path from the root of the repository."""
        return f"{self.blob}/{quote(path, errors='surrogateescape')}#L{line}" if self.blob else ""

    def __str__(self) -> str:
        return f"{self.name} at commit {self.commit[:10]}" if self.commit else self.name


def origin_of(top: Path) -> Origin:
    """What git knows of a folder; only its name where it is no repository."""
    try:
        commit = git.run(top, "rev-parse", "--verify", "--quiet", "HEAD", codes=(0, 1)).decode().strip()
        remote = git.run(top, "config", "--get", "remote.origin.url", codes=(0, 1)).decode(errors="replace")
        ask = ("for-each-ref", "--count=1", f"--contains={commit}", "--format=x", "refs/remotes/origin")
        published = bool(commit and remote and git.run(top, *ask).strip())
    except git.GitError:
        return Origin(top.name)
    place = _REMOTE.fullmatch(remote.strip())
    if place is None:
        return Origin(top.name, commit)
    host, name = place.groups()
    between = {"github": "", "gitlab": "/-"}.get(next((one for one in ("github", "gitlab") if one in host), ""))
    return Origin(
        name, commit, f"https://{host}/{name}{between}/blob/{commit}" if published and between is not None else ""
    )
