"""Megatron's releases for the new rooms: the packed file, with what is known by heart."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from mcore_unpatch.library.detailed import Detailed, Details
from mcore_unpatch.library.model import Model
from mcore_unpatch.library.one_release import LATER, OneRelease
from mcore_unpatch.library.packing import appended
from mcore_unpatch.library.released import AllReleases, Heart, Packed
from mcore_unpatch.megatron import parts
from mcore_unpatch.megatron.versions import RELEASES, reached

_SOURCE = "+"  # behind the release that a source says it is


@cache
def _bytes() -> bytes:
    return files("mcore_unpatch.megatron").joinpath("models.bin").read_bytes()


@cache
def packed() -> Packed:
    """The names of every release."""
    return Packed(_bytes(), heart())


@cache
def heart() -> Heart:
    """What is known of Megatron by heart."""
    return Heart(
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
        parts.REFUSING,
    )


def library() -> AllReleases:
    """Every release as one."""
    return AllReleases(packed())


def releases() -> list[OneRelease]:
    """Each release, oldest first, and at the end those to come."""
    return [OneRelease(packed(), label) for label in (*packed().labels, LATER)]


@cache
def details() -> Details:
    """The releases with their bodies and uses."""
    return Details(packed(), _bytes())


def with_sources(models: list[Model]) -> tuple[Details, list[Detailed]]:
    """The releases, with Megatrons that were read from their source behind them, as if they came last."""
    if not models:
        return details(), []
    whole, labels = _bytes(), list[str]()
    for model in models:
        label = f"{model.label}{_SOURCE}"
        labels.append(f"{label}{_SOURCE}" if label in labels else label)
        whole = appended(whole, model, labels[-1])
    every = Details(Packed(whole, heart()), whole)
    return every, list(map(every.release, labels))


def stands_for(version: tuple[int, ...]) -> str:
    """The release that a version means: itself, the newest of a minor one, or the newest of all."""
    return (reached(version) or RELEASES[:1])[-1]
