"""The upgrade report for machines: JSON, and findings for the services of forges."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from mcore_unpatch.effects.records import Effect
from mcore_unpatch.findings.finding import Finding, Report
from mcore_unpatch.report.upgrade_text import groups
from mcore_unpatch.say.effects import mark, sentence, trigger
from mcore_unpatch.say.other_model import sentence as elsewhere
from mcore_unpatch.upgrade.columns import NEXT
from mcore_unpatch.upgrade.run import Event, PatchRow, UpgradeReport

_RULE = "MCU811"


def as_json(report: UpgradeReport) -> dict[str, Any]:
    """The report as plain data, version 2."""
    grouped = {id(event): group.key for group in groups(report) for event in group.events}
    known = [event for event in report.events if id(event) in grouped]
    columns = [
        {"release": column.label, "runs": [kind for kind in column.kinds if kind != NEXT], "is": column.words,
         "next": column.is_next}
        for column in report.columns
    ]  # fmt: skip
    return {
        "version": 2,
        "root": report.scanned.root,
        "to": report.next.label,
        "megatrons": columns,
        "files_scanned": report.scanned.files_scanned,
        "counts": dict(Counter(grouped[id(event)] for event in known)),
        "patches": [_row(row, report) for row in report.rows],
        "events": [_event(event, grouped[id(event)], report) for event in known],
        "patch_files": [finding.path for finding in report.patch_files],
        "builders": report.builders,
        "read": {"files": report.files, "uses": report.uses},
        "errors": [{"path": error.path, "message": error.message} for error in report.scanned.errors],
    }


def _row(row: PatchRow, report: UpgradeReport) -> dict[str, Any]:
    finding = row.finding
    return {
        "rule": finding.rule if finding is not None else None,
        "path": report.shown(row.path),
        "line": row.line,
        "target": row.target,
        "becomes": row.becomes,
        "fix": finding.fix if finding is not None else None,
        "marks": {label: mark(effects) for label, effects in row.effects.items()},
        "effects": {label: [_effect(one) for one in effects] for label, effects in row.effects.items()},
        "hybrid": row.hybrid and {**row.hybrid._asdict(), "text": elsewhere(row.hybrid)},
    }


def _effect(effect: Effect) -> dict[str, Any]:
    """What a release does, in the words of records."""
    return {
        "kind": str(effect.kind),
        "name": effect.cause.name,
        "by": effect.cause.by,
        "words": list(effect.cause.words),
        "exception": effect.exception,
    }


def _event(event: Event, group: str, report: UpgradeReport) -> dict[str, Any]:
    effect, row = event.effect, event.row
    return {
        "group": group,
        "path": report.shown(effect.place.path),
        "line": effect.place.line,
        "when": str(effect.place.when),
        "releases": list(event.releases),
        **_effect(effect),
        "text": sentence(effect),
        "function": event.function,
        "called": event.is_called,
        "patch": {"path": report.shown(row.path), "line": row.line, "target": row.target} if row is not None else None,
    }


def as_findings(report: UpgradeReport) -> Report:
    """What raises or differs on the next Megatron, as findings whose message says what happens there."""
    label = report.next.label
    told = [event for group in groups(report) for event in group.events if label in event.releases]
    return replace(report.scanned, findings=[_finding(event, report) for event in told])


def _finding(event: Event, report: UpgradeReport) -> Finding:
    effect, row = event.effect, event.row
    when = f" ({trigger(effect)}, on {', '.join(event.releases)})" if effect.raises else f" (on {report.next.label})"
    message = sentence(effect).rstrip(".") + when
    place = (report.shown(effect.place.path), effect.place.line, 1, effect.place.line)
    if row is not None and row.finding is not None and (row.path, row.line) == effect.place[:2]:
        return replace(row.finding, message=message)
    return Finding(_RULE, *place, row.target if row is not None else "", "use", message)
