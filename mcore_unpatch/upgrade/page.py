"""The page of an upgrade: something a lead can send around."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mcore_unpatch.report.edits import proposed_edits
from mcore_unpatch.report.html import Card, Kind, Pane, page
from mcore_unpatch.upgrade.judge import Fate
from mcore_unpatch.upgrade.merge import Merge
from mcore_unpatch.upgrade.report import HEADS, REMEDIES, summary
from mcore_unpatch.upgrade.run import UpgradeReport

_LOOKS = {"breaks": "bad", "different": "warn", "unnecessary": "good", "harmless": "plain"}


def page_of(report: UpgradeReport, merges: Sequence[tuple[Fate, Merge]] = ()) -> str:
    """Every patch with its code, upstream's change and the proposed edit."""
    kinds = {urgency: Kind(head, _LOOKS[urgency]) for urgency, (head, _) in HEADS.items()}
    edits = proposed_edits(report.scanned)
    made = {id(fate): merge for fate, merge in merges}
    cards = []
    for fate in report.fates:
        finding = fate.finding
        said = list(fate.reasons)
        if finding.fix and fate.urgency != "harmless":
            said.append(REMEDIES[finding.fix])
        panes = [Pane(f"the patch, line {finding.line}", finding.source)]
        if code := _code(fate, report):
            panes.append(Pane("the replacement", code, is_open=False))
        if merge := made.get(id(fate)):
            panes.append(Pane(f"upstream since {merge.release}", merge.upstream.rstrip("\n"), True))
            panes.append(Pane("your changes to the copy", merge.own.rstrip("\n"), True))
        if finding.fix and finding.path in edits:
            panes.append(Pane("what migrate would change in this file", edits[finding.path], True, is_open=False))
        place = f"{report.scanned.from_here(finding.path)}:{finding.line}"
        cards.append(Card(fate.urgency, finding.target, place, tuple(said), tuple(panes)))
    title = f"Megatron Core {report.old.label} to {report.new.label}"
    return page(title, summary(report), kinds, cards)


def _code(fate: Fate, report: UpgradeReport) -> str:
    leaning = fate.leaning
    if leaning is None or not leaning.path:
        return ""
    text = (Path(report.scanned.top) / leaning.path).read_text(encoding="utf-8", errors="replace")
    return "\n".join(text.splitlines()[leaning.line - 1 : leaning.end_line])
