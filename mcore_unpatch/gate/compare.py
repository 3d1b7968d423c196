"""What is new against another commit: findings of both trees, matched without regard to line numbers."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import ge
from pathlib import Path

from mcore_unpatch import pins
from mcore_unpatch.errors import UsageError
from mcore_unpatch.findings.finding import Finding, Live
from mcore_unpatch.megatron.versions import Version
from mcore_unpatch.repository import git
from mcore_unpatch.repository.discover import is_megatron_itself, is_source

Key = tuple[str, str, str, str]
_Way = tuple[Live, bool, bool]  # on which releases a patch runs, whether it is undone again, whether it is in a test

_LINK = "120000"


def merge_bases(top: Path, reference: str, head: str = "HEAD") -> tuple[str, ...]:
    """The commits where HEAD and the reference part; raises `UsageError` for one git does not know.

    Where each has merged the other they are several, and none of them has all that both had.
    """
    git.work_tree(top)
    shallow = git.run(top, "rev-parse", "--is-shallow-repository").strip() == b"true"
    try:
        commit = git.commit_of(top, reference)
    except git.Ambiguous as error:
        raise UsageError(f"{error} (refs/heads/{reference} is the branch)") from None
    except git.GitError:
        way = "this clone is shallow, run `git fetch --unshallow`" if shallow else "fetch it first, or name another"
        raise UsageError(f"git does not know the base {reference!r}: {way}") from None
    try:
        return tuple(git.run(top, "merge-base", "--all", commit, head).decode().split())
    except git.GitError:
        way = " in this shallow clone: run `git fetch --unshallow` to fetch more history" if shallow else ""
        raise UsageError(f"{reference!r} and HEAD have no commit in common{way}") from None


def pinned_at(top: Path, revisions: Iterable[str]) -> dict[str, pins.Pin]:
    """The pins of patches in the locks of some commits, by name."""
    locks = filter(None, (git.file_at(top, revision, pins.LOCK) for revision in revisions))
    known = (pin for data in locks for pin in pins.parse(data, top / pins.LOCK).pins.items())
    return {name: pin for name, pin in known if pin.patched}


def new_findings(
    now: list[Finding],
    before: list[Finding],
    renamed: Mapping[str, str],
    versions: Callable[[str], tuple[Version, ...]] = lambda _: (),
) -> list[Finding]:
    """Findings of `now` that `before` does not have; `renamed` maps a path of now to its old one.

    First within a file (the old name of it), then across files: a patch that moved with its code is not new, unless it
    runs now where it did not (`versions` are judged for), is no longer undone, or has left the tests.
    """
    known: dict[Key, Counter[_Way]] = {}
    for finding in before:
        if not finding.touches:
            known.setdefault(_key(finding, finding.path), Counter())[_way(finding)] += 1
    touched = {name for finding in before for name in finding.touches}
    unmatched = []
    new = []
    for finding in now:
        if finding.touches:  # a patch file is written anew as a whole: what it did not touch before is new
            if fresh := tuple(name for name in finding.touches if name not in touched):
                new.append(replace(finding, target=fresh[0], touches=fresh))
            continue
        there = known.get(_key(finding, renamed.get(finding.path, finding.path)), Counter())
        if not _take(finding, there, versions(finding.path)):
            unmatched.append(finding)
    moved: dict[tuple[str, ...], Counter[_Way]] = {}
    for key, there in known.items():
        moved.setdefault(key[1:], Counter()).update(there)
    for finding in unmatched:
        there = moved.get(_key(finding, "")[1:], Counter())
        if not _take(finding, there, versions(finding.path)):
            less = next(there.elements(), None)
            there.subtract([less] if less else [])
            new.append(finding if less is None else replace(finding, message=f"{finding.message}; {_gain(*less)}"))
    return new


def _way(finding: Finding) -> _Way:
    return finding.live, finding.temporary, finding.in_test


def _take(finding: Finding, there: Counter[_Way], versions: tuple[Version, ...]) -> bool:
    """Whether one of those that were there did as much as the finding does; the least of them is taken away."""

    def reach(live: Live, temporary: bool, in_test: bool) -> list[bool]:
        return [*map(live.on, versions), not temporary, not in_test]

    wanted = reach(*_way(finding))
    enough = [way for way, count in there.items() if count > 0 and all(map(ge, reach(*way), wanted))]
    if enough:
        there[min(enough, key=lambda way: sum(reach(*way)))] -= 1
    return bool(enough)


def _gain(_: Live, temporary: bool, in_test: bool) -> str:
    """What a patch does now that the same text did not do before."""
    if in_test:
        return "before this change it stood in a test"
    return "before this change it was undone again" if temporary else "before this change it did not run"


def changed(top: Path, revisions: Iterable[str]) -> list[str]:
    """The files that each of some commits lacks or has otherwise than HEAD."""
    options = ("-r", "--name-only", "--diff-filter=d", "-z")  # plumbing looks for renames only where it is told to
    first, *others = (git.names(git.run(top, "diff-tree", *options, revision, "HEAD")) for revision in revisions)
    return [path for path in first if all(path in some for some in others)]


def renames(top: Path, revisions: Iterable[str]) -> dict[str, str]:
    """New path -> old path of files renamed between commits and HEAD: two trees, so that no filter has to run."""
    options = ("-r", "-M", "--diff-filter=R", "--name-status", "-z")
    fields: list[str] = []
    for revision in revisions:
        fields += os.fsdecode(git.run(top, "diff-tree", *options, revision, "HEAD")).split("\0")[:-1]
    return {fields[i + 2]: fields[i + 1] for i in range(0, len(fields), 3)}


def _key(finding: Finding, path: str) -> Key:
    # What a comment switches off has no target, and its message says of what.
    return (path, finding.rule, finding.target or finding.message, "".join(finding.source.split()))


def blobs_at(top: Path, revision: str) -> dict[str, str]:
    """What a scan of that tree would look at: its Python and patch files, but for Megatron's own source.

    Links are not followed: a patch that only a link leads to counts as new.
    """
    blobs: dict[str, str] = {}
    for entry in git.names(git.run(top, "ls-tree", "-r", "-z", revision)):
        facts, path = entry.split("\t", 1)
        mode, kind, name = facts.split()
        if kind == "blob" and mode != _LINK:
            blobs[path] = name
    sources = filter(is_source, blobs)
    return {path: blobs[path] for path in sources if not is_megatron_itself(path, blobs.__contains__)}


def contents_of(top: Path, names: Iterable[str]) -> dict[str, bytes]:
    """The bytes of blobs by their names; raises `UsageError` where some are missing."""
    contents = git.contents(top, wanted := set(names))
    if not contents.keys() >= wanted:
        raise UsageError(git.PARTIAL_CLONE)
    return contents
