"""Megatron Core versions: reading them, comparing them, and which of them a requirement allows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # loaded where a requirement is read: most scans read none
    from packaging.specifiers import SpecifierSet

Version = tuple[int, int]

# Named where nothing else says which release to judge for.
NEWEST: Version = (0, 19)
OLDEST: Version = (0, 12)

# Every release on PyPI from the oldest to the newest known: those that `history.bin` was made from.
_PATCHES = {12: 4, 13: 2, 14: 1, 15: 4, 16: 2, 17: 2, 18: 3, 19: 3}
_NEVER_RELEASED = {"0.18.1", "0.19.1"}
RELEASES = tuple(
    name
    for minor, count in _PATCHES.items()
    for patch in range(count)
    if (name := f"0.{minor}.{patch}") not in _NEVER_RELEASED
)
# The oldest Python that a release runs on.
OLDEST_PYTHON: tuple[tuple[Version, Version], ...] = (((0, 12), (3, 10)), ((0, 17), (3, 12)))

_PATCH_RELEASES = 10  # more than any minor release had
_RELEASE = re.compile(r"v?(\d+)\.(\d+)(?:\.\w+)*")
_TAG = re.compile(r"(?:^|[_/vr-])v?(\d+)\.(\d+)")


def parse_version(text: str) -> Version:
    """`0.19`, `0.19.2` or `v0.19` as (0, 19); raises ValueError on anything else."""
    match = _RELEASE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a megatron-core version; write it like 0.19 or 0.19.2")
    return int(match[1]), int(match[2])


def show(version: Version) -> str:
    """(0, 19) as `0.19`."""
    return f"{version[0]}.{version[1]}"


def tagged(reference: str) -> Version | None:
    """The release that a git tag or branch of Megatron-LM names, such as `core_v0.18.0` or `core_r0.18.0`."""
    match = _TAG.search(reference)
    return (int(match[1]), int(match[2])) if match else None


def allowed(specifiers: SpecifierSet) -> tuple[Version, ...]:
    """The oldest and the newest release that fit, once where they are the same; without a lower bound the newest."""
    from packaging.version import Version as Release

    named = [Release(one.version.removesuffix(".*")) for one in specifiers if one.operator != "==="]
    candidates = [*map(Release, _known()), *named]
    fitting = sorted({(one.major, one.minor) for one in candidates if specifiers.contains(one, prereleases=True)})
    if not fitting or any(one.operator in {"==", ">=", ">", "~="} for one in specifiers):
        return tuple(dict.fromkeys((*fitting[:1], *fitting[-1:])))
    return (fitting[-1],)


def _known() -> Iterable[str]:
    minors = range(OLDEST[1], NEWEST[1] + 1)
    return (f"0.{minor}.{patch}" for minor in minors for patch in range(_PATCH_RELEASES))
