"""The page of a scan."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from mcore_unpatch.findings.finding import Report
from mcore_unpatch.report.counts import EFFECTS, FATES, fate_of, group_of, urgency
from mcore_unpatch.report.html import Card, Kind, Pane, page
from mcore_unpatch.report.lines import count
from mcore_unpatch.report.origin import Origin, origin_of

_LOOKS = {"rewrite": "good", "delete": "good", "delete_by_hand": "good", "kept": "plain", "breaks": "bad"}
KINDS, MARKS = (
    {name: Kind(words, _LOOKS.get(name, "warn")) for name, words in table.items()} for table in (FATES, EFFECTS)
)


def page_of(report: Report) -> str:
    """Every patch, the most urgent first, with its code and what `migrate` would change in its file."""
    diffs = report.proposed() if any(finding.fix for finding in report.findings) else {}
    origin = origin_of(Path(report.top or report.root))
    cards = []
    for finding in sorted(report.findings, key=urgency):
        said = [finding.message, f"{finding.verdict.capitalize()}: {finding.evidence}"]
        said += [f"On {group}" for group in finding.assessment.on_stacks]
        said += finding.steps if finding.verdict == "steps" else ()
        panes = [Pane(f"{finding.rule}, line {finding.line}", finding.source)]
        if finding.fix and finding.path in diffs:
            panes.append(Pane("what migrate would change in this file", diffs[finding.path], True, is_open=False))
        card = Card(
            fate_of(finding),
            finding.target or finding.rule,
            f"{report.from_here(finding.path)}:{finding.line}",
            tuple(said),
            tuple(panes),
            finding.effect,
            group_of(finding),
            origin.link(report.from_top(finding.path), finding.line),
        )
        cards.append(card)
    return page("Patches of Megatron Core", about(report, origin), KINDS, cards, MARKS)


def about(report: Report, origin: Origin) -> str:
    """What the page is about: the repository, its commit, the day, what was read and for which releases."""
    today = date.today()
    read = f"{origin}, {today.day} {today:%B %Y}: {count(report.files_scanned, 'file')} read."
    return " ".join([read, *map(str, report.judged)])
