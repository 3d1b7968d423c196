"""The commits of Megatron-LM: when each was, and between which releases it lies. Made by `tools/build_commits.py`."""

from __future__ import annotations

import json
import lzma
import re
from bisect import bisect_left
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Any

from mcore_unpatch.records import record

START = date(2018, 1, 1).toordinal()
_DIGITS = 8
_COMMIT = re.compile(r"[0-9a-f]{7,40}")


@record
class Commit:
    """One commit: its first digits, and the nearest releases; none before or after where there is none yet."""

    digits: str
    day: date
    branch: str
    version: str  # of the package, as the commit itself says
    before: str
    after: str


@record
class Table:
    """All commits, by their digits, and the names that stand for one."""

    names: dict[str, str]
    digits: tuple[str, ...]
    days: bytes
    kinds: bytes
    table: list[list[str]]

    @property
    def until(self) -> date:
        """The day of the newest commit."""
        return max(self._at(number).day for number in range(len(self.digits)))

    def find(self, commit: str) -> list[Commit]:
        """The commits that begin with some digits, at least 7: one, none, or in theory several."""
        wanted = commit.lower()[:_DIGITS]
        first = bisect_left(self.digits, wanted)
        last = bisect_left(self.digits, f"{wanted}g")
        return [self._at(number) for number in range(first, last)]

    def named(self, name: str) -> Commit | None:
        """What a branch or a tag of Megatron-LM stands for, when the table was made."""
        digits = self.names.get(name)
        return self.find(digits)[0] if digits else None

    def _at(self, number: int) -> Commit:
        day = int.from_bytes(self.days[2 * number : 2 * number + 2])
        kind = int.from_bytes(self.kinds[2 * number : 2 * number + 2])
        branch, version, before, after = self.table[kind]
        return Commit(self.digits[number], date.fromordinal(START + day), branch, version, before, after)


def is_commit(text: str) -> bool:
    """Whether a text may be a commit, abbreviated or not."""
    return bool(_COMMIT.fullmatch(text.lower())) and not text.isdecimal()


@cache
def table() -> Table:
    """The table that comes with this tool."""
    return read(files("mcore_unpatch.megatron").joinpath("commits.bin").read_bytes())


def read(packed: bytes) -> Table:
    """A table from its bytes."""
    data = lzma.decompress(packed)
    size = int.from_bytes(data[:4])
    head: dict[str, Any] = json.loads(data[4 : 4 + size])
    count, at = head["count"], 4 + size
    digits = data[at : at + 4 * count].hex()
    days, kinds = (data[at + start * count : at + (start + 2) * count] for start in (4, 6))
    split = tuple(digits[start : start + _DIGITS] for start in range(0, len(digits), _DIGITS))
    return Table(head["names"], split, days, kinds, head["kinds"])
