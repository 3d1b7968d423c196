"""The upgrade report as pages and for services: Markdown for a pull request, HTML, annotations, SARIF."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mcore_unpatch.findings.finding import Assessment, Finding, Report
from mcore_unpatch.report.pages import Card, Pane, head_of, origin_of, page
from mcore_unpatch.upgrade.fates import Fate
from mcore_unpatch.upgrade.items import ALREADY, APPLY, CHANGE, GO, HEADS, RAISE, Item
from mcore_unpatch.upgrade.merge import Merge
from mcore_unpatch.upgrade.run import UpgradeReport

_RULE = "MCU811"
_LOOKS = dict.fromkeys(HEADS, "plain") | {RAISE: "bad", CHANGE: "warn", APPLY: "warn", GO: "good"}


def markdown(report: UpgradeReport, known: Sequence[Item], closing: Sequence[str]) -> str:
    """A page for a pull request: a table for each group, long ones and tests folded."""
    said = [f"## megatron-core {report.old.label} to {report.new.label}", "", *closing]
    for group, head in HEADS.items():
        for folded in (False, True):
            members = [item for item in known if item.group == group and bool(item.folded) is folded]
            if not members:
                continue
            title = f"{head} ({len(members)})" if not folded else f"{head}, in tests and patch files ({len(members)})"
            is_open = group in (RAISE, CHANGE) and not folded
            said += ["", f"### {title}"] if is_open else ["", f"<details><summary>{title}</summary>"]
            said += ["", "| line | what happens |", "|---|---|", *map(_row, members)]
            said += [] if is_open else ["", "</details>"]
    return "\n".join(said) + "\n"


def _row(item: Item) -> str:
    told = [*([f"**{item.title}**"] if item.title else []), *item.reasons, *([item.advice] if item.advice else [])]
    return f"| `{item.where}` | {'<br>'.join(text.replace('|', chr(92) + '|') for text in told)} |"


def as_findings(report: UpgradeReport, known: Sequence[Item]) -> Report:
    """Each item that the step is to blame for as a finding whose message says what happens there."""
    return replace(report.scanned, findings=[_finding(item) for item in known if item.group != ALREADY])


def _finding(item: Item) -> Finding:
    message = "; ".join([*([item.title] if item.title and item.fate is None else []), *item.reasons])
    if item.fate is not None:
        return replace(item.fate.finding, message=message)
    message += f"; {item.advice}" if item.advice else ""
    place = (item.path, item.line, 1, item.line)
    told = Assessment(evidence=item.advice)
    return Finding(_RULE, *place, "", "use", message, in_test=bool(item.folded), assessment=told)


def html(report: UpgradeReport, known: Sequence[Item], summary: str, merges: Sequence[tuple[Fate, Merge]] = ()) -> str:
    """Every item with its code; of a patch upstream's change and the proposed edit too."""
    edits = report.scanned.proposed() if any(finding.fix for finding in report.scanned.findings) else {}
    origin = origin_of(Path(report.scanned.top))
    made = {id(fate): merge for fate, merge in merges}
    cards = []
    for item in known:
        said = (*item.reasons, *([item.advice] if item.advice else ()))
        panes = _panes(item.fate, report, made.get(id(item.fate)), edits) if item.fate is not None else ()
        place = report.scanned.from_here(item.path) + item.where.removeprefix(item.path)
        link = origin.link(report.scanned.from_top(item.path), item.line)
        cards.append(Card(item.group, item.title, place, said, tuple(panes), "", item.folded or "code", link))
    title = f"Megatron Core {report.old.label} to {report.new.label}"
    return page(title, f"{head_of(report.scanned, origin)} {summary}", HEADS, {}, _LOOKS, cards)


def _panes(fate: Fate, report: UpgradeReport, merge: Merge | None, edits: dict[str, str]) -> Iterator[Pane]:
    finding = fate.finding
    yield Pane(f"the patch, line {finding.line}", finding.source)
    if code := _code(fate, report):
        yield Pane("the replacement", code, is_open=False)
    if merge is not None:
        yield Pane(f"upstream since {merge.release}", merge.upstream.rstrip("\n"), True)
        yield Pane("your changes to the copy", merge.own.rstrip("\n"), True)
    if finding.fix and finding.path in edits:
        yield Pane("what migrate would change in this file", edits[finding.path], True, is_open=False)


def _code(fate: Fate, report: UpgradeReport) -> str:
    new = fate.case.new if fate.case is not None else None
    if new is None or new.function is None or new.home is None:
        return ""
    text = (Path(report.scanned.top) / new.home.model.path).read_text(encoding="utf-8", errors="replace")
    return "\n".join(text.splitlines()[new.function.lineno - 1 : new.function.end_lineno])
