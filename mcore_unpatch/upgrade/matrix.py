"""Many releases at once: which lines raise on each, and so which releases a repository supports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from mcore_unpatch.errors import UsageError
from mcore_unpatch.megatron.versions import RELEASES
from mcore_unpatch.report.lines import Line, count, wrapped
from mcore_unpatch.upgrade.items import RAISE, Item, items
from mcore_unpatch.upgrade.run import UpgradeReport

_MOST_LINES = 3  # that are named of each release
MAIN = "main"


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


def raising(report: UpgradeReport) -> list[Item]:
    """What raises on a release, on the one in use too or not; tests are left out."""
    return [item for item in items(report) if (item.group == RAISE or item.raises_on_both) and not item.folded]


def supported(reports: Sequence[UpgradeReport], in_use: str) -> tuple[str, str] | None:
    """The oldest and the newest release around the one in use on which nothing raises; None where it is not there."""
    for breaks, run in groupby(reports, key=lambda report: bool(raising(report))):
        labels = [report.new.label for report in run]
        if in_use in labels:
            return None if breaks else (labels[0], labels[-1])
    return None


def lines(reports: Sequence[UpgradeReport], in_use: str) -> Iterator[Line]:
    """A line for each release, and what the metadata of the repository can say."""
    yield [(f"Lines that raise, seen from megatron-core {in_use}", "bold")]
    yield []
    for report in reports:
        broken = raising(report)
        named = ", ".join(report.scanned.from_here(item.path) + f":{item.line}" for item in broken[:_MOST_LINES])
        more = f" and {len(broken) - _MOST_LINES} more" if len(broken) > _MOST_LINES else ""
        mark = ", ".join(filter(None, ["in use" * (report.new.label == in_use), f"{named}{more}"]))
        head = f"  {report.new.label:<10}{len(broken) or '-':>4}  "
        style = "bold red" if broken else "green"
        yield from wrapped(mark, 0, head, style) if mark else [[(head.rstrip(), style)]]
    yield []
    uses = reports[0].uses
    read = f"{count(uses.read, 'use')} of Megatron in {count(uses.files, 'file')}"
    yield from wrapped(f"Read: {read}; tests are left out.", 0)
    told = f"No range to recommend: lines raise on megatron-core {in_use}, which is in use, or it is not in this range."
    if span := supported(reports, in_use):
        floor, ceiling = span
        told = f"Of what was read nothing raises from {floor} to {ceiling}: `megatron-core>={floor},<={ceiling}`."
    yield from wrapped(told, 0)


def as_data(reports: Sequence[UpgradeReport], in_use: str) -> dict[str, object]:
    """The same as plain data."""
    span = supported(reports, in_use)
    places = [(report.new.label, [f"{item.path}:{item.line}" for item in raising(report)]) for report in reports]
    told = [{"release": label, "raises": lines} for label, lines in places]
    return {"version": 1, "in_use": in_use, "releases": told, "floor": span and span[0], "ceiling": span and span[1]}
