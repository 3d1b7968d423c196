"""What Megatron's own code does with each of its names, and in which releases each changed: `uses.bin`.

Made from the released wheels by `tools/build_megatron_uses.py`. A name has one line, in the order of the names: only
the few lines that are asked for are read.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from mcore_unpatch.megatron.roots import shorten
from mcore_unpatch.megatron.versions import Version, parse_version

# Of a name in a minor release: not there, there without a body, as in the release before, or other than there.
ABSENT, BODILESS, SAME, CHANGED = ".", "a", "s", "c"
# Named in a ModuleSpec, the default of an argument or a field, called, a subclass called, a base class, used otherwise.
HOWS = NAMED, DEFAULT, CALLED, DERIVED, BASE, USED = "sacdbv"
UNREAD = "0"
# Where an attribute comes from, the telling ones first.
SOURCES = SPEC, ARGUMENT, BUILT, MADE = ("spec", "argument", "built", "made")


@dataclass(frozen=True, slots=True)
class Use:
    """How one release uses one of its names: `hows`, in so many modules, and one place; of an attribute its source."""

    hows: str = ""
    modules: int = 0
    place: str = ""
    source: str = ""
    is_unread: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """The line of a name."""

    letters: str
    uses: tuple[tuple[Version, str], ...]

    def is_on(self, version: Version) -> bool:
        """Whether a minor release has it; the newest one that is known speaks for newer ones."""
        minor = min(version, minors()[-1])
        return minor in minors() and self.letters[minors().index(minor)] != ABSENT

    def written(self, version: Version) -> str:
        """What the file says for a minor release; the newest one that is known speaks for newer ones."""
        return next((text for since, text in reversed(self.uses) if since <= version), "")

    def on(self, version: Version) -> Use:
        """How a minor release uses it."""
        text = self.written(version)
        head, _, place = text.partition(" ")
        if text == UNREAD:
            return Use(is_unread=True)
        if head in SOURCES:
            return Use(place=place, source=head)
        hows = head.rstrip("0123456789")
        return Use(hows, int(head[len(hows) :] or 0), place)


def pack(releases: Mapping[str, Mapping[str, str]], letters: Mapping[str, str]) -> bytes:
    """The file for what minor releases do with the names; the same bytes for the same releases."""
    lines = [" ".join(releases)]
    for name in sorted({*letters, *(name for facts in releases.values() for name in facts)}):
        entries, before = [], ""
        for minor, facts in releases.items():
            if facts.get(name, "") != before:
                before = facts.get(name, "")
                entries.append(f"{minor}:{before}")
        lines.append("\t".join([shorten(name), letters.get(name, ""), *entries]))
    return zlib.compress("\n".join([lines[0], *sorted(lines[1:])]).encode(), 9)


@cache
def _lines() -> list[bytes]:
    return zlib.decompress(files("mcore_unpatch.megatron").joinpath("uses.bin").read_bytes()).split(b"\n")


@cache
def minors() -> tuple[Version, ...]:
    """The minor releases that are known, oldest first."""
    return tuple(map(parse_version, _lines()[0].decode().split()))


@cache
def known(name: str) -> Known | None:
    """What is known of a dotted name; None where no release has it."""
    wanted = f"{shorten(name)}\t".encode()
    place = bisect_left(_lines(), wanted, lo=1)
    line = _lines()[place] if place < len(_lines()) else b""
    if not line.startswith(wanted):
        return None
    _, letters, *entries = line.decode().split("\t")
    parts = (entry.partition(":") for entry in entries)
    return Known(letters, tuple((parse_version(since), text) for since, _, text in parts))
