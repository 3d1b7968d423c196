"""A copy of Megatron's function: what upstream changed since it was made, and what the team changed in it."""

from __future__ import annotations

import re
from pathlib import Path

from mcore_unpatch.records import record
from mcore_unpatch.stacks.at_hand import Sources, cut, diff
from mcore_unpatch.upgrade.fates import Fate
from mcore_unpatch.upgrade.run import UpgradeReport


@record
class Changes:
    """Of one copy: the release it was made from, upstream's changes since and the team's own, as unified diffs."""

    release: str
    upstream: str
    own: str


def changes(fate: Fate, report: UpgradeReport, sources: Sources) -> Changes | None:
    """What became of a copied function on both sides; None where a source is missing."""
    case, copied = fate.case, fate.copy
    if case is None or copied is None or fate.target.before is None or fate.target.after is None:
        return None
    base = sources.text(copied.release, fate.target.before.name)
    theirs = sources.text(report.new.label, fate.target.after.name)
    if base is None or theirs is None:
        return None
    assert case.new.function is not None and case.new.home is not None
    path = case.new.home.model.path
    text = (Path(report.scanned.top) / path).read_text(encoding="utf-8")
    ours = cut(text.splitlines(keepends=True), case.new.function)
    name = getattr(case.new.function, "name", "")
    # The function under the name the copy has, so that the name is no difference.
    base, theirs = (re.sub(r"(?<=\bdef )\w+", name, each, count=1) for each in (base, theirs))
    then, now = f"megatron-core {copied.release}", f"megatron-core {report.new.label}"
    return Changes(copied.release, diff(base, theirs, then, now), diff(base, ours, then, path))
