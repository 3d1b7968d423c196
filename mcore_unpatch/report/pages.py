"""The pages of HTML: a scan, and an upgrade, each as one table of places over Megatrons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from pathlib import Path, PurePosixPath

from mcore_unpatch.effects.other_model import Becomes
from mcore_unpatch.effects.records import Outcome
from mcore_unpatch.findings.finding import BREAKS, BY_HAND, NEVER_RUNS, Finding, Report
from mcore_unpatch.megatron.versions import parse_version
from mcore_unpatch.report.counts import urgency as urgency_of
from mcore_unpatch.report.lines import count
from mcore_unpatch.report.page import MARKS, PageRow, Pane, page
from mcore_unpatch.report.upgrade_text import groups, hybrid_of, marks_of, urgency
from mcore_unpatch.repository.history import authors, origin_of
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.say.effects import DIFFERS, NOT_PRINTED, NOT_REACHED, OK, RAISES, sentence, trigger
from mcore_unpatch.say.findings import evidence, message, on_stacks
from mcore_unpatch.say.names import short
from mcore_unpatch.say.other_model import sentence as elsewhere
from mcore_unpatch.upgrade.copies import Changes
from mcore_unpatch.upgrade.run import Event, PatchRow as Patch, UpgradeReport

_FOLDERS = 2  # parts of a path that a folder is filtered by
_OURS, _COPY = "ours", "a copy of upstream"


def of_scan(report: Report) -> str:
    """Every finding, the most urgent first, with its code and what `migrate` would change in its file."""
    diffs = report.proposed() if any(finding.fix for finding in report.findings) else {}
    releases = sorted({one.release for finding in report.findings for one in finding.outcomes}, key=parse_version)
    who = _Authors(report, ((finding.path, finding.line) for finding in report.findings))
    rows = []
    for finding in sorted(report.findings, key=urgency_of):
        said = [message(finding), f"{finding.judgement.fate}: {evidence(finding)}", *who.of(finding.path, finding.line)]
        said += [f"On {on_stacks(group)}" for group in finding.assessment.on_stacks]
        said += finding.steps if finding.verdict == BY_HAND else ()
        marks = {one.release: _mark(finding, one.release, one.outcome) for one in finding.outcomes}
        name = f"{finding.subject or finding.rule}{' (in a test)' if finding.in_test else ''}"
        place, link = _place(report, finding.path, finding.line)
        panes = tuple(_of_finding(finding, diffs))
        shown = tuple(marks.get(release, NOT_REACHED if marks else OK) for release in releases)
        rows.append(
            PageRow(name, place, shown, finding.judgement.fate, tuple(said), panes, link, _folder(finding.path))
        )
    return page("Patches of Megatron Core", _head(report), releases, rows)


def of_upgrade(report: UpgradeReport, copies: Mapping[tuple[str, int, str], Changes]) -> str:
    """Every patch, and every other place that raises or differs, the most urgent first."""
    scanned = report.scanned
    edits = scanned.proposed() if any(row.finding and row.finding.fix for row in report.rows) else {}
    alone = [(event, group.key) for group in groups(report) for event in group.events if not event.row]
    places = [(row.path, row.line) for row in report.rows] + [event.effect.place[:2] for event, _ in alone]
    who = _Authors(scanned, ((report.shown(path), line) for path, line in places))
    rows = []
    for patch in sorted(report.rows, key=lambda row: urgency(row, report)):
        changes = copies.get((patch.path, patch.line, patch.target))
        said = list(_happens(patch))
        said += [f"{patch.becomes}: {evidence(patch.finding)}"] if patch.finding is not None else []
        if patch.hybrid is not None and patch.hybrid.becomes != Becomes.ACTS:
            said.append(f"When the model is a HybridModel it {elsewhere(patch.hybrid)}.")
        told = tuple(dict.fromkeys([*said, *who.of(report.shown(patch.path), patch.line)]))
        place, link = _place(scanned, report.shown(patch.path), patch.line)
        panes, origin = tuple(_of_patch(patch, changes, edits)), _COPY if patch.copied else _OURS
        marks, folder = (*marks_of(patch, report), *hybrid_of(patch, report)), _folder(patch.path)
        rows.append(PageRow(short(patch.target), place, marks, patch.becomes, told, panes, link, folder, origin))
    has_hybrid = any(row.hybrid is not None for row in report.rows)
    rows += [_of_event(event, key, report, who, has_hybrid) for event, key in alone]
    rows.sort(key=lambda row: list(MARKS).index(row.worst))
    columns = [f"{column.label}{' next' if column.is_next else ''}" for column in report.columns]
    columns += ["Hybrid"] * has_hybrid
    read = f"{count(len(report.rows), 'patch', 'patches')} and {count(report.uses, 'use')} of Megatron Core."
    title = f"Megatron Core {', '.join(report.today)} to {report.next.label}"
    return page(title, f"{_head(scanned)} {read}", columns, rows)


def _happens(patch: Patch) -> Iterator[str]:
    """What the Megatrons do to a patch, each thing once, with those that do it."""
    told: dict[str, list[str]] = {}
    for label, effects in patch.effects.items():
        for effect in effects:
            if effect.kind not in NOT_PRINTED and effect.kind != Outcome.NONE:
                told.setdefault(sentence(effect), []).append(label)
    yield from (f"{said} ({', '.join(labels)})" for said, labels in told.items())


def _mark(finding: Finding, release: str, outcome: str) -> str:
    if outcome in (BREAKS, NEVER_RUNS):
        return RAISES if outcome == BREAKS else NOT_REACHED
    differs = any(one.differs and release in one.releases for one in finding.effects)
    return DIFFERS if differs else OK


def _of_finding(finding: Finding, diffs: Mapping[str, str]) -> Iterator[Pane]:
    yield Pane(f"{finding.rule}, line {finding.line}", finding.source)
    if finding.upstream:
        yield Pane("what Megatron changed", finding.upstream, True)
    if finding.fix and finding.path in diffs:
        yield Pane("what migrate would change in this file", diffs[finding.path], True)


def _of_patch(row: Patch, changes: Changes | None, edits: Mapping[str, str]) -> Iterator[Pane]:
    if changes is not None:
        yield Pane(f"upstream since {changes.release}", changes.upstream.rstrip("\n"), True)
        yield Pane("your changes to the copy", changes.own.rstrip("\n"), True)
    if row.finding is not None:
        yield from _of_finding(row.finding, edits)


def _of_event(event: Event, key: str, report: UpgradeReport, who: _Authors, has_hybrid: bool) -> PageRow:
    effect, path = event.effect, report.shown(event.effect.place.path)
    mark = DIFFERS if key == "differs" else RAISES
    marks = tuple(mark if column.label in event.releases else OK for column in report.columns) + ("",) * has_hybrid
    said = [sentence(effect), *([f"{trigger(effect)[:1].upper()}{trigger(effect)[1:]}."] if effect.raises else [])]
    said += who.of(path, effect.place.line)
    place, link = _place(report.scanned, path, effect.place.line)
    return PageRow(short(effect.cause.name), place, marks, "", tuple(said), (), link, _folder(path), _OURS)


class _Authors:
    """Who wrote the lines that a page shows, asked of git once a file."""

    def __init__(self, report: Report, places: Iterable[tuple[str, int]]) -> None:
        lines = defaultdict[str, set[int]](set)
        for path, line in places:
            lines[path].add(line)
        top = Path(report.top or report.root)
        self._known = {path: authors(top, report.from_top(path), some) for path, some in lines.items()}

    def of(self, path: str, line: int) -> Iterator[str]:
        """One line of it, as a sentence."""
        if who := self._known.get(path, {}).get(line):
            yield f"Written by {who}."


def _place(report: Report, path: str, line: int) -> tuple[str, str]:
    """A place for people, and its address on a forge."""
    origin = origin_of(Path(report.top or report.root))
    return f"{report.from_here(path)}:{line}", origin.link(report.from_top(path), line)


def _folder(path: str) -> str:
    parent = PurePosixPath(path).parent.parts
    return "tests" if is_test(path) else "/".join(parent[:_FOLDERS]) or "."


def _head(report: Report) -> str:
    """What the page is about: the repository, its commit, the day, what was read and for which releases."""
    today, origin = date.today(), origin_of(Path(report.top or report.root))
    read = f"{origin}, {today.day} {today:%B %Y}: {count(report.files_scanned, 'file')} read."
    return " ".join([read, *map(str, report.judged)])
