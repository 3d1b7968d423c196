"""The Megatrons of a report: the newest of each kind of image that a repository runs, and the one it moves to."""

from __future__ import annotations

from collections.abc import Sequence

from mcore_unpatch.library.detailed import Detailed
from mcore_unpatch.megatron.megatrons import Megatrons
from mcore_unpatch.megatron.versions import Version
from mcore_unpatch.records import record
from mcore_unpatch.stacks.revision import Revision, Stack

NEXT = "next"


@record
class Column:
    """One Megatron: its release, what it is called, and which images run it, or that it is the next one."""

    release: Detailed
    kinds: tuple[str, ...] = ()
    words: str = ""  # what it is, where it is no release
    name: str = ""  # of a branch

    @property
    def label(self) -> str:
        """What it is called: a branch by its name, else the release that stands for it."""
        return self.name or self.release.label

    @property
    def is_next(self) -> bool:
        """Whether it is the one to move to."""
        return NEXT in self.kinds


def in_use(stacks: Sequence[Stack], megatrons: Megatrons) -> tuple[list[Column], int]:
    """The newest Megatron of each platform, oldest first, and how many others are named."""
    newest: dict[str, tuple[Version, Stack]] = {}
    for stack in stacks:
        version = stands_for(stack.revision)
        if version is None:
            continue
        for platform in stack.platforms or ("",):
            before = newest.get(platform)
            if before is None or (version, stack.revision.certain) > (before[0], before[1].revision.certain):
                newest[platform] = (version, stack)
    if len(newest) > 1 and any(
        version >= newest[""][0] for kind, (version, _) in newest.items() if kind and "" in newest
    ):
        del newest[""]  # where no platform is said, one of the others is meant
    columns: dict[Version, Column] = {}
    for platform, (version, stack) in sorted(newest.items(), key=lambda item: item[1][0]):
        known = columns.get(version)
        kinds = (*(known.kinds if known else ()), *([platform] if platform else ()))
        words = "" if stack.revision.certain else f"{stack.name}, {stack.revision.words}"
        words = words if known is None else words and known.words  # what is certain speaks for all of them
        columns[version] = Column(megatrons.release(version), kinds, words)
    shown = {stack.name for _, stack in newest.values()}
    return list(columns.values()), sum(stack.name not in shown for stack in stacks)


def stands_for(revision: Revision) -> Version | None:
    """The release that a Megatron is judged by: itself, the newest of a range, or the one a commit comes from."""
    if not revision.versions:
        return None
    return revision.versions[-1] if revision.is_range else revision.versions[0]
