"""The Megatrons that something is judged for: releases, and sources that the user named, which speak for a version."""

from __future__ import annotations

from collections.abc import Sequence

from mcore_unpatch.library.detailed import Detailed
from mcore_unpatch.library.every import Library
from mcore_unpatch.library.packed import Packed
from mcore_unpatch.megatron import known, packed
from mcore_unpatch.megatron.versions import Version


class Megatrons:
    """Every release, each source that was lent to a version, and some more `sources`."""

    def __init__(self, sources: Sequence[Packed] = ()) -> None:
        lent = known.lent()
        self._details, read = packed.with_sources([*lent.values(), *sources])
        self._sources = dict(zip(lent, read, strict=False))
        self.sources = read[len(lent) :]
        self.every = self._details.between(0, len(packed.packed().labels))
        self.library = Library(self._details.packed)
        # A patch is installed on those, and on what comes after them.
        self.releases = [*self.every, packed.details().later()]

    def release(self, version: Version) -> Detailed:
        """What speaks for a version."""
        return self._sources.get(version) or self._details.release(packed.stands_for(version))
