"""The page of a scan."""

from __future__ import annotations

from mcore_unpatch.findings import Report
from mcore_unpatch.report.counts import FATES, fate_of
from mcore_unpatch.report.edits import proposed_edits
from mcore_unpatch.report.html import Card, Kind, Pane, page
from mcore_unpatch.report.lines import count

_LOOKS = {"rewrite": "good", "delete": "good", "delete_by_hand": "good", "kept": "plain"}
KINDS = {fate: Kind(words, _LOOKS.get(fate, "warn")) for fate, words in FATES.items()}


def page_of(report: Report) -> str:
    """Every patch, with its code and what `migrate` would change in its file."""
    edits = proposed_edits(report)
    cards = []
    for finding in report.findings:
        said = [finding.message, f"{finding.verdict.capitalize()}: {finding.evidence}"]
        said += finding.steps if finding.verdict == "steps" else ()
        panes = [Pane(f"{finding.rule}, line {finding.line}", finding.source)]
        if finding.fix and finding.path in edits:
            panes.append(Pane("what migrate would change in this file", edits[finding.path], True, is_open=False))
        place = f"{report.from_here(finding.path)}:{finding.line}"
        cards.append(Card(fate_of(finding), finding.target or finding.rule, place, tuple(said), tuple(panes)))
    judged = " ".join(map(str, report.judged))
    summary = f"{count(len(cards), 'patch', 'patches')} in {count(report.files_scanned, 'file')}. {judged}"
    return page("Patches of Megatron Core", summary, KINDS, cards)
