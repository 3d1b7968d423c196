"""The core over one state of a repository: its patches, found and judged once for every question."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from types import MappingProxyType

from mcore_unpatch.code.index import Index
from mcore_unpatch.code.names import Names
from mcore_unpatch.effects.judge import Judge
from mcore_unpatch.effects.uses import Uses
from mcore_unpatch.effects.verdicts import Verdicts
from mcore_unpatch.megatron import parts
from mcore_unpatch.megatron.answers import Answer, answers
from mcore_unpatch.megatron.megatrons import Megatrons
from mcore_unpatch.patches.find import Finder
from mcore_unpatch.patches.patch_files import patch_files
from mcore_unpatch.patches.records import Patch

_DEEP = 6_000  # a question about a name leads through as many calls


class Core:
    """The patches of some files, and what judges them."""

    def __init__(
        self, sources: Mapping[str, bytes], megatrons: Megatrons, diffs: Mapping[str, bytes] = MappingProxyType({})
    ) -> None:
        """The bytes of each Python file of the repository, with plain line ends, and of the diffs in it."""
        sys.setrecursionlimit(max(sys.getrecursionlimit(), _DEEP))
        self.megatrons, self.index = megatrons, Index(sources)
        self.finder, self._diffs = Finder(Names(self.index, megatrons.library)), diffs

    @property
    def names(self) -> Names:
        """What the names of the files are."""
        return self.finder.names

    @cached_property
    def patches(self) -> list[Patch]:
        """Every patch outside tests."""
        with no_collection():
            return self.finder.all()

    @cached_property
    def judge(self) -> Judge:
        """What a Megatron does to them."""
        files = patch_files(self._diffs, self.megatrons.library)
        return Judge(self.names, self.patches, files, parts.HOOK[0], parts.TAKEN)

    @cached_property
    def uses(self) -> Uses:
        """And to everything else."""
        return Uses(self.judge)

    @cached_property
    def verdicts(self) -> Verdicts[Answer]:
        """What is to become of them."""
        return Verdicts(self.judge, answers(), parts.TELLS, self.megatrons.every)


@contextmanager
def no_collection() -> Iterator[None]:
    """Syntax trees are many small objects without a cycle: to look for garbage among them takes a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
