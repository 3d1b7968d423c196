"""A copy of Megatron's function: what upstream changed since it was made, and what the team changed in it."""

from __future__ import annotations

import re
from pathlib import Path

from mcore_unpatch.records import record
from mcore_unpatch.stacks.at_hand import Sources, cut, diff
from mcore_unpatch.upgrade.run import PatchRow, UpgradeReport


@record
class Changes:
    """Of one copy: the release it was made from, upstream's changes since and the team's own, as unified diffs."""

    release: str
    upstream: str
    own: str


def changes(row: PatchRow, report: UpgradeReport, sources: Sources) -> Changes | None:
    """What became of a copied function on both sides; None where a source is missing."""
    copied = row.copied
    if copied is None:
        return None
    base = sources.text(copied.release, copied.before)
    theirs = sources.text(report.next.label, copied.after)
    if base is None or theirs is None:
        return None
    text = (Path(report.scanned.top) / copied.path).read_text(encoding="utf-8")
    ours = cut(text.splitlines(keepends=True), copied.function)
    # The function under the name the copy has, so that the name is no difference.
    base, theirs = (re.sub(r"(?<=\bdef )\w+", copied.function.name, each, count=1) for each in (base, theirs))
    then, now = f"megatron-core {copied.release}", f"megatron-core {report.next.label}"
    return Changes(copied.release, diff(base, theirs, then, now), diff(base, ours, then, copied.path))
