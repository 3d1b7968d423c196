"""Megatron's releases: `models.bin`, made by `tools/build_models.py`, with what is known by heart."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from mcore_unpatch.library.detailed import Detailed, Releases
from mcore_unpatch.library.every import Library
from mcore_unpatch.library.packed import Branch, Packed
from mcore_unpatch.megatron.parts import LIBRARY
from mcore_unpatch.megatron.versions import RELEASES, reached

_SOURCE = "+"  # behind the release that a source says it is


@cache
def packed() -> Packed:
    """What every release says of names."""
    return Packed.read(files("mcore_unpatch.megatron").joinpath("models.bin").read_bytes(), LIBRARY)


@cache
def library() -> Library:
    """Every release as one."""
    return Library(packed())


@cache
def details() -> Releases:
    """Each release."""
    return Releases(packed())


def releases() -> list[Detailed]:
    """Each release, oldest first, and at the end those to come."""
    return [*details().every(), details().later()]


def with_sources(sources: Sequence[Packed]) -> tuple[Releases, list[Detailed]]:
    """The releases, with Megatrons that were read from their source behind them, as if they came last."""
    whole = packed()
    for source in sources:
        label = f"{source.labels[0]}{_SOURCE}"
        whole = whole.plus(source, f"{label}{_SOURCE}" if label in whole.labels else label)
    every = Releases(whole) if sources else details()
    return every, every.between(len(RELEASES), len(whole.labels))


def branch_named(name: str) -> Branch | None:
    """A branch of NVIDIA's, `main` or `dev`, as it was when the models were made."""
    return next((branch for branch in packed().branches if branch.name == name), None)


def on_branches() -> list[tuple[Branch, Detailed]]:
    """What the branches have, the one nearest to a release first."""
    made = [(branch, packed().branch(branch)) for branch in packed().branches]
    return [(branch, Releases(one).at(len(one.labels) - 1)) for branch, one in made]


def stands_for(version: tuple[int, ...]) -> str:
    """The release that a version means: itself, the newest of a minor one, or the newest of all."""
    return (reached(version) or RELEASES[:1])[-1]
