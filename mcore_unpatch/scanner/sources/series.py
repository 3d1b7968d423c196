"""Patch files that are applied one after the other: quilt's `series`, git's numbers, or git's names of the contents."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from mcore_unpatch.scanner.sources.hunks import FileDiff, read

_NUMBERED = re.compile(r"(\d{4})-")
Reader = Callable[[str], bytes]


def applied_before(path: str, patches: Iterable[str], exists: Callable[[str], bool], contents: Reader) -> list[str]:
    """The patch files of its folder that a patch file expects to be applied, in their order."""
    folder, _, name = path.rpartition("/")
    beside = {one.rpartition("/")[2]: one for one in patches if one.rpartition("/")[0] == folder and one != path}
    series = f"{folder}/series" if folder else "series"
    if exists(series):
        listed = [line.split()[0] for line in contents(series).decode(errors="replace").splitlines() if line.split()]
        if name in listed:
            return [beside[one] for one in listed[: listed.index(name)] if one in beside]
    if number := _NUMBERED.match(name):
        earlier = [one for one in sorted(beside) if (found := _NUMBERED.match(one)) and found[1] < number[1]]
        return [beside[one] for one in earlier]
    return _by_contents(path, list(beside.values()), contents)


def _by_contents(path: str, beside: list[str], contents: Reader) -> list[str]:
    """Those that leave a file as this one, or one that it expects, finds it."""
    files = {one: read(contents(one)) for one in (path, *beside)}
    order, waiting = [path], [path]
    for one in waiting:
        for other in beside:
            if other not in order and any(_leads(first, then) for first in files[other] for then in files[one]):
                order.insert(0, other)
                waiting.append(other)
    return order[:-1]


def _leads(first: FileDiff, then: FileDiff) -> bool:
    """Whether one diff of a file makes the content that another starts from; git shortens the names it gives them."""
    made, found = first.blobs[1], then.blobs[0]
    shorter = min(len(made), len(found))
    return shorter > 0 and bool(made.strip("0")) and first.new == then.old and made[:shorter] == found[:shorter]
