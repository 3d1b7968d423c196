"""What is new against another commit: findings of both trees, matched without regard to line numbers."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from mcore_unpatch import git
from mcore_unpatch.discover import PATCHES, PYTHON, SKIPPED_FOLDERS, is_excluded
from mcore_unpatch.errors import UsageError
from mcore_unpatch.findings import Finding
from mcore_unpatch.requirements import Requirements
from mcore_unpatch.search import Search

Key = tuple[str, str, str, str]


def findings_at(
    top: Path, revision: str, pins: Requirements, mocks: bool, exclude: tuple[str, ...] = (), base: Path | None = None
) -> list[Finding]:
    """The findings of a commit, read from git without a checkout; `exclude` is relative to `base`, as on disk."""
    blobs = {
        path: name for path, name in _blobs(top, revision).items() if not is_excluded(top / path, base or top, exclude)
    }
    reader = _Reader(top, blobs)
    python = [path for path in blobs if path.endswith(PYTHON)]
    folders = {path.rsplit("/", depth)[0] for path in blobs for depth in range(1, path.count("/") + 1)}
    names = folders.union(blobs)
    search = Search(reader.read, names.__contains__, pins.versions, mocks, size=lambda path: len(reader.read(path)))
    return search(python, [path for path in blobs if path.endswith(PATCHES)])[0]


def merge_base(top: Path, reference: str) -> str:
    """The commit where HEAD and the reference part; raises `UsageError` for one git does not know."""
    git.work_tree(top)
    shallow = git.run(top, "rev-parse", "--is-shallow-repository").strip() == b"true"
    try:
        commit = git.run(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}")
    except git.GitError:
        way = "this clone is shallow, run `git fetch --unshallow`" if shallow else "fetch it first, or name another"
        raise UsageError(f"git does not know the base {reference!r}: {way}") from None
    try:
        return git.run(top, "merge-base", commit.decode().strip(), "HEAD").decode().strip()
    except git.GitError:
        way = " in this shallow clone: run `git fetch --unshallow` to fetch more history" if shallow else ""
        raise UsageError(f"{reference!r} and HEAD have no commit in common{way}") from None


def new_findings(now: list[Finding], before: list[Finding], renamed: dict[str, str]) -> list[Finding]:
    """Findings of `now` that `before` does not have; `renamed` maps a path of now to its old one.

    First within a file (the old name of it), then across files: a patch that moved with its code is not new.
    """
    known = Counter(_key(finding, finding.path) for finding in before)
    unmatched = []
    for finding in now:
        key = _key(finding, renamed.get(finding.path, finding.path))
        if known[key]:
            known[key] -= 1
        else:
            unmatched.append(finding)
    moved = Counter({key[1:]: 0 for key in known})
    for key, count in known.items():
        moved[key[1:]] += count
    new = []
    for finding in unmatched:
        content = _key(finding, "")[1:]
        if moved[content]:
            moved[content] -= 1
        else:
            new.append(finding)
    return new


def renames(top: Path, revision: str) -> dict[str, str]:
    """New path -> old path of files renamed between a commit and HEAD: two trees, so that no filter has to run."""
    output = git.run(top, "diff-tree", "-r", "-M", "--diff-filter=R", "--name-status", "-z", revision, "HEAD")
    fields = os.fsdecode(output).split("\0")
    return {fields[i + 2]: fields[i + 1] for i in range(0, len(fields) - 2, 3)}


def _key(finding: Finding, path: str) -> Key:
    # The head of a hunk says nothing but line numbers, and a patch file is written anew as a whole.
    content = "" if finding.shape == "patch-file" else "".join(finding.source.split())
    return (path, finding.rule, finding.target, content)


def _blobs(top: Path, revision: str) -> dict[str, str]:
    """What a scan of that tree would look at: no links, no environments, no caches, not Megatron's own source."""
    blobs = {}
    skipped = []
    for entry in git.names(git.run(top, "ls-tree", "-r", "-z", revision)):
        facts, path = entry.split("\t", 1)
        mode, kind, name = facts.split()
        if path.endswith(("/pyvenv.cfg", "megatron/core/package_info.py")):
            skipped.append(path.rpartition("/")[0] + "/")
        if kind == "blob" and mode != "120000" and path.endswith((*PYTHON, *PATCHES)):
            if not SKIPPED_FOLDERS.intersection(path.split("/")[:-1]):
                blobs[path] = name
    for path in [path for path in blobs if path.startswith(tuple(skipped))]:
        del blobs[path]
    return blobs


class _Reader:
    """All wanted blobs in one call of git."""

    def __init__(self, top: Path, blobs: dict[str, str]) -> None:
        self._data: dict[str, bytes] = {}
        if not blobs:
            return
        names = sorted(set(blobs.values()))
        output = git.run(top, "cat-file", "--batch", stdin="\n".join(names).encode() + b"\n")
        contents: dict[str, bytes] = {}
        position = 0
        while position < len(output):
            end = output.index(b"\n", position)
            name, *facts = output[position:end].decode().split()
            position = end + 1
            if facts[0] != "missing":
                size = int(facts[1])
                contents[name] = output[position : position + size]
                position += size + 1
        if not contents.keys() >= set(names):
            raise UsageError(git.PARTIAL_CLONE)
        self._data = {path: contents[name] for path, name in blobs.items()}

    def read(self, path: str) -> bytes:
        return self._data[path]
