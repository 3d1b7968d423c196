"""The Megatrons that something is judged for: releases, and sources that the user named, which speak for a version."""

from __future__ import annotations

from collections.abc import Sequence

from mcore_unpatch.library.detailed import Detailed
from mcore_unpatch.library.model import Model
from mcore_unpatch.library.one_release import LATER, OneRelease
from mcore_unpatch.library.released import AllReleases
from mcore_unpatch.megatron import known, packed
from mcore_unpatch.megatron.versions import Version


class Megatrons:
    """Every release, each source that was lent to a version, and the sources of some more `models`."""

    def __init__(self, models: Sequence[Model] = ()) -> None:
        lent = known.lent()
        self._details, read = packed.with_sources([*lent.values(), *models])
        self._sources = dict(zip(lent, read, strict=False))
        self.sources = read[len(lent) :]
        self._models = {one.label: model for one, model in zip(read, [*lent.values(), *models], strict=True)}
        self.every = [self._details.release(label) for label in packed.packed().labels]
        self.library = AllReleases(self._details.packed)
        # A patch is installed on those, and on what comes after them.
        self.releases: list[OneRelease] = [*self.every, OneRelease(packed.packed(), LATER)]

    def release(self, version: Version) -> Detailed:
        """What speaks for a version."""
        return self._sources.get(version) or self._details.release(packed.stands_for(version))

    def model(self, release: Detailed) -> Model:
        """The same with its facts as they are packed."""
        return self._models.get(release.label) or known.model(release.label)
