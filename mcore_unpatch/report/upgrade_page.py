"""The upgrade report as a page of HTML: the table, and each place with its code, its causes and its edit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from mcore_unpatch.report.lines import count
from mcore_unpatch.report.pages import Card, Pane, head_of, origin_of, page
from mcore_unpatch.report.upgrade_text import BECOMES, Group, groups, marks_of, urgency
from mcore_unpatch.say.effects import DIFFERS, NOT_REACHED, OK, RAISES, UNKNOWN, details, sentence, trigger
from mcore_unpatch.say.names import short
from mcore_unpatch.upgrade.copies import Changes
from mcore_unpatch.upgrade.run import Event, PatchRow, UpgradeReport

_KINDS = {
    RAISES: "raises",
    DIFFERS: "differs",
    UNKNOWN: "cannot be told",
    OK: "runs as written",
    NOT_REACHED: "never runs",
}
_LOOKS = {RAISES: "bad", DIFFERS: "warn", UNKNOWN: "warn", OK: "good", NOT_REACHED: "plain"}


def html(report: UpgradeReport, copies: Mapping[tuple[str, int, str], Changes]) -> str:
    """Every patch and every event of another line, the most urgent first."""
    edits = report.scanned.proposed() if any(row.finding and row.finding.fix for row in report.rows) else {}
    rows = sorted(report.rows, key=lambda row: urgency(row, report))
    cards = [_of_row(row, report, copies.get((row.path, row.line, row.target)), edits) for row in rows]
    cards += [_of_event(event, group, report) for group in groups(report) for event in group.events if not event.row]
    cards.sort(key=lambda card: list(_KINDS).index(card.kind))
    marks = {verb: verb for verb in BECOMES}
    looks = _LOOKS | dict.fromkeys(marks, "plain")
    labels = ", ".join(report.today)
    title = f"Megatron Core {labels} to {report.next.label}"
    read = f"{count(len(report.rows), 'patch', 'patches')} and {count(report.uses, 'use')} of Megatron Core."
    origin = origin_of(Path(report.scanned.top))
    return page(title, f"{head_of(report.scanned, origin)} {read}", _KINDS, marks, looks, cards)


def _of_row(row: PatchRow, report: UpgradeReport, changes: Changes | None, edits: dict[str, str]) -> Card:
    marks = marks_of(row, report)
    on = [f"{column.label}: {each}" for column, each in zip(report.columns, marks, strict=True)]
    said = [" · ".join(on), *dict.fromkeys(line for effects in row.effects.values() for line in details(effects))]
    kind = min(marks, key=list(_KINDS).index)
    place = f"{report.from_here(row.path)}:{row.line}"
    panes = tuple(_panes(row, report, changes, edits))
    return Card(
        kind, short(row.target), place, tuple(said), panes, row.becomes, "code", _link(row.path, row.line, report)
    )


def _panes(row: PatchRow, report: UpgradeReport, changes: Changes | None, edits: dict[str, str]) -> Iterator[Pane]:
    finding = row.finding
    if finding is not None:
        yield Pane(f"the patch, line {finding.line}", finding.source)
    if changes is not None:
        yield Pane(f"upstream since {changes.release}", changes.upstream.rstrip("\n"), True)
        yield Pane("your changes to the copy", changes.own.rstrip("\n"), True)
    if finding is not None and finding.fix and finding.path in edits:
        yield Pane("what migrate would change in this file", edits[finding.path], True, is_open=False)


def _of_event(event: Event, group: Group, report: UpgradeReport) -> Card:
    effect = event.effect
    place = f"{report.from_here(effect.place.path)}:{effect.place.line}"
    when = f"{trigger(effect)}, " if effect.raises else ""
    said = (sentence(effect), f"{when}on {', '.join(event.releases)}")
    kind = DIFFERS if group.key == "differs" else RAISES
    return Card(kind, short(effect.cause.name), place, said, (), "", "code", _link(*effect.place[:2], report))


def _link(path: str, line: int, report: UpgradeReport) -> str:
    return origin_of(Path(report.scanned.top)).link(path, line)
