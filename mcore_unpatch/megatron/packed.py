"""Megatron's releases for the new rooms: the packed file, with what is known by heart."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from mcore_unpatch.library.detailed import Details
from mcore_unpatch.library.one_release import LATER, OneRelease
from mcore_unpatch.library.released import AllReleases, Heart, Packed
from mcore_unpatch.megatron import parts


@cache
def packed() -> Packed:
    """The names of every release."""
    heart = Heart(
        parts.PACKAGES,
        parts.DISTRIBUTION,
        parts.VERSIONED,
        parts.PARTS,
        parts.LISTS,
        parts.HOLDS,
        parts.RESULTS,
        {name: frozenset(words.split()) for name, words in parts.OUTSIDE.items()},
        parts.WHOLE,
        parts.MODULE,
        parts.COMPANIONS,
        parts.WORDS,
        (parts.COMPILED,),
        (parts.TRAINING, parts.TRAINING_SINCE),
    )
    return Packed(files("mcore_unpatch.megatron").joinpath("models.bin").read_bytes(), heart)


def library() -> AllReleases:
    """Every release as one."""
    return AllReleases(packed())


def releases() -> list[OneRelease]:
    """Each release, oldest first, and at the end those to come."""
    return [OneRelease(packed(), label) for label in (*packed().labels, LATER)]


@cache
def details() -> Details:
    """The releases with their bodies and uses."""
    return Details(packed(), files("mcore_unpatch.megatron").joinpath("models.bin").read_bytes())
