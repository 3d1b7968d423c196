"""Any way to name a Megatron, as an option takes it: a release, a tag, a branch, a commit, or where its source lies."""

from __future__ import annotations

import os
from dataclasses import dataclass

from mcore_unpatch.errors import UsageError
from mcore_unpatch.library.model import Model
from mcore_unpatch.library.sources import model_of
from mcore_unpatch.megatron import commits, known
from mcore_unpatch.megatron.sources import MegatronSource, installed_source, source_at
from mcore_unpatch.megatron.versions import LIBRARY, RELEASES, parse_version
from mcore_unpatch.stacks.revision import Revision, of_reference, of_release

INSTALLED = "installed"  # the one that an import would find


@dataclass(frozen=True, slots=True)
class Target:
    """One Megatron that the user named: its releases, and its source where that is at hand."""

    revision: Revision
    source: MegatronSource | None = None

    def models(self) -> list[Model]:
        """The model of its source, or of each release that stands for it."""
        if self.source is not None:
            return [model_of(LIBRARY, self.source.label, self.source.files)]
        return [known.newest(version) for version in self.revision.versions]

    def lend(self) -> None:
        """Let its source speak for its version in this process, where it has one."""
        if self.source is not None:
            known.lend(self.revision.versions[0], self.models()[0])


def target(text: str) -> Target:
    """What a user means by a text; raises `UsageError` with the ways to name one."""
    plain = text.strip()
    if plain == INSTALLED:
        return _installed()
    if (release := of_release(plain)) is not None:
        return _of_release(plain, release)
    clone, at, _ = plain.rpartition("@")
    if os.path.lexists(plain) or (at and os.path.isdir(clone)):  # noqa: PTH112
        return at_place(plain)
    reference = of_reference(plain)
    if reference.versions:
        if reference.versions[-1] < parse_version(RELEASES[0]):
            raise UsageError(
                f"{plain} is {reference.words}, the oldest known; pass a clone that has it: CLONE@{plain}."
            )
        return Target(reference)
    if commits.is_commit(plain):
        raise UsageError(f"{plain} is {reference.words}; pass a clone that has it: CLONE@{plain}, or a checkout of it.")
    raise UsageError(
        f"{text!r} is no Megatron: pass a release ({RELEASES[0]} to {RELEASES[-1]}), a tag or a branch (core_v0.18.0, "
        "main), a commit of at least 7 digits, a checkout, a wheel, CLONE@COMMIT, or `installed`."
    )


def at_place(place: str) -> Target:
    """The Megatron whose source lies somewhere; raises `UsageError`."""
    source = source_at(place)
    return Target(Revision(source.label, (parse_version(source.label),), f"the source in {place}"), source)


def _installed() -> Target:
    source = installed_source()
    if source is None:
        raise UsageError(
            "No megatron-core is installed beside unpatch; pass a checkout, a wheel or CLONE@COMMIT instead."
        )
    return Target(Revision(source.label, (parse_version(source.label),), "the one that is installed"), source)


def _of_release(text: str, release: Revision) -> Target:
    """A release that is known, or that is installed; raises `UsageError` for another."""
    if release.certain:
        return Target(release)
    source = installed_source()
    if source is not None and f"{source.label}.".startswith(f"{release.name}."):
        return _installed()
    raise UsageError(
        f"This version of unpatch knows megatron-core {RELEASES[0]} to {RELEASES[-1]}, not {text}; pass its source "
        f"instead (a checkout, a wheel, a folder, or CLONE@COMMIT). Known: {', '.join(RELEASES)}."
    )
