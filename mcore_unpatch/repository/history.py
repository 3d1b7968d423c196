"""What git knows of a repository for a reader: where its lines can be read, and who wrote them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from mcore_unpatch.records import record
from mcore_unpatch.repository import git

_REMOTE = re.compile(r"(?:(?:https?|ssh|git)://)?(?:[^@/\s]+@)?([\w.-]+)(?::\d+)?[/:]([\w./~-]+?)(?:\.git)?/?\s*")
_HEAD = re.compile(rb"[0-9a-f]{40,64} \d+ (\d+)")


@record
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
    between = next((path for forge, path in {"github": "", "gitlab": "/-"}.items() if forge in host), None)
    known = published and between is not None
    return Origin(name, commit, f"https://{host}/{name}{between}/blob/{commit}" if known else "")


def authors(top: Path, path: str, lines: Iterable[int]) -> dict[int, str]:
    """Who wrote some lines of a file, and on which day; empty where git does not know."""
    ranges = [part for line in sorted({*lines}) for part in ("-L", f"{line},{line}")]
    try:
        told = git.run(top, "blame", "--line-porcelain", *ranges, "--", path) if ranges else b""
    except git.GitError:
        return {}
    found: dict[int, str] = {}
    line, who = 0, ""
    for text in told.split(b"\n"):
        word, _, rest = text.partition(b" ")
        if match := _HEAD.match(text):
            line = int(match[1])
        elif word == b"author":
            who = rest.decode(errors="replace")
        elif word == b"author-time":
            found[line] = f"{who}, {datetime.fromtimestamp(int(rest), UTC):%Y-%m-%d}"
    return found
