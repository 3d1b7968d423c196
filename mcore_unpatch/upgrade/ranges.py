"""Many releases at once: what raises on each, and so which releases a repository supports."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from mcore_unpatch.errors import UsageError
from mcore_unpatch.megatron.versions import RELEASES
from mcore_unpatch.records import record
from mcore_unpatch.upgrade.columns import Column
from mcore_unpatch.upgrade.run import Reading

MAIN = "main"


@record
class Fit:
    """One Megatron, and the places that raise on it."""

    label: str
    raises: tuple[tuple[str, int], ...]


def releases_of(text: str) -> tuple[list[str], bool]:
    """`0.16..0.19.2` or `0.16..main` as releases, and whether what --to names comes last; raises `UsageError`."""
    first, dots, last = text.partition("..")
    if not dots:
        raise UsageError(f"{text!r} is not a range of releases; write it like 0.16..0.19.2, or 0.16..main --to PATH.")
    start, end = _known(first)[0], len(RELEASES) - 1 if last == MAIN else _known(last)[-1]
    if last == MAIN:
        return list(RELEASES[start:]), True
    if end < start:
        raise UsageError(f"{first} is newer than {last}: write the older release first.")
    return list(RELEASES[start : end + 1]), False


def _known(text: str) -> list[int]:
    """Where the releases of a number stand among the known ones; raises `UsageError`."""
    start = f"{text.removeprefix('v')}."
    fitting = [index for index, release in enumerate(RELEASES) if f"{release}.".startswith(start)]
    if not fitting:
        raise UsageError(f"{text!r} is no release that unpatch knows; it knows {RELEASES[0]} to {RELEASES[-1]}.")
    return fitting


def fits(reading: Reading, columns: Sequence[Column]) -> list[Fit]:
    """What raises on each of some Megatrons."""
    return [Fit(column.label, tuple(sorted(reading.raising(column)))) for column in columns]


def supported(fitting: Sequence[Fit], in_use: str) -> tuple[str, str] | None:
    """The oldest and the newest release around the one in use on which nothing raises; None where it is not there."""
    for raises, run in groupby(fitting, key=lambda fit: bool(fit.raises)):
        labels = [fit.label for fit in run]
        if in_use in labels:
            return None if raises else (labels[0], labels[-1])
    return None


def as_data(fitting: Sequence[Fit], in_use: str) -> dict[str, object]:
    """The same as plain data."""
    span = supported(fitting, in_use)
    told = [{"release": fit.label, "raises": [f"{path}:{line}" for path, line in fit.raises]} for fit in fitting]
    return {"version": 1, "in_use": in_use, "releases": told, "floor": span and span[0], "ceiling": span and span[1]}
