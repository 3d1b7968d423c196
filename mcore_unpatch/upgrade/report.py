"""The upgrade report for people and for machines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mcore_unpatch.findings.finding import Assessment, Finding, Report
from mcore_unpatch.megatron.known import lacking
from mcore_unpatch.megatron.versions import RELEASES
from mcore_unpatch.report import services
from mcore_unpatch.report.counts import groups
from mcore_unpatch.report.lines import Line, OutputFormat, count, show, width, wrapped
from mcore_unpatch.report.pages import Card, Pane, head_of, origin_of, page
from mcore_unpatch.upgrade.copies import Changes
from mcore_unpatch.upgrade.fates import Fate
from mcore_unpatch.upgrade.items import (
    ALREADY,
    APPLY,
    CHANGE,
    GO,
    HEADS,
    PATCH_FILES,
    RAISE,
    SPEEDS,
    TESTS,
    Item,
    items,
    migrate_command,
    urgent,
)
from mcore_unpatch.upgrade.run import UpgradeReport

_STYLES = {RAISE: "bold red", CHANGE: "bold yellow", APPLY: "bold", SPEEDS: "bold", GO: "bold green"}
_SCREEN = 40  # lines of the report, without --all


def write(
    report: UpgradeReport, style: OutputFormat, copies: Sequence[tuple[Fate, Changes]] = (), every: bool = False
) -> None:
    """Print the report in the format asked for; text shows the copies as well."""
    known = items(report)
    if style is OutputFormat.text:
        show(lines(report, known, {(fate.finding.path, fate.finding.line): made for fate, made in copies}, every))
    elif style is OutputFormat.github:
        print("\n".join(services.github(as_findings(report, known), "warning")))
    elif style is OutputFormat.html:
        print(html(report, known, " ".join(closing(report, known)), copies), end="")
    else:
        services_of = {OutputFormat.sarif: services.sarif, OutputFormat.gitlab: services.gitlab}
        make = services_of.get(style)
        print(json.dumps(make(as_findings(report, known)) if make else report.to_json(), indent=2))


def lines(
    report: UpgradeReport, known: Sequence[Item], copies: Mapping[tuple[str, int], Changes], every: bool
) -> Iterator[Line]:
    """The report, line by line: what raises first; one screen, unless `every` item is wanted."""
    groups = {group: [item for item in known if item.group == group] for group in HEADS}
    told = {
        group: [list(_told(item, also, report, copies, every)) for item, also in _together(members, every)]
        for group, members in groups.items()
    }
    end = [line for text in closing(report, known) for line in wrapped(text, 0)]
    shown = {group: len(items_of) for group, items_of in told.items()}
    if not every:
        shown = _fitting(told, _SCREEN - 2 - len(end) - 3 * sum(map(bool, groups.values())))
    yield [(report.from_to, "bold")]
    for group, members in groups.items():
        if not members:
            continue
        left = _left(members, len(told[group]) - shown[group], every)
        yield []
        head = (f"{HEADS[group]} ({len(members)})", _STYLES.get(group, "bold"))
        yield [head, ("" if shown[group] else "  --all lists them", "dim")]
        for item_lines in told[group][: shown[group]]:
            yield from item_lines
        if left and shown[group]:
            yield from wrapped(f"and {left}", 2)
    yield []
    yield from end


def _together(members: Sequence[Item], every: bool) -> Iterator[tuple[Item, int]]:
    """The items to tell, each with in how many more places the same is true; with `every` all of them, one by one."""
    same: dict[tuple[object, ...], list[Item]] = {}
    for item in members:
        if every or not item.folded:
            key: tuple[object, ...] = (id(item),)
            if not every and item.group == APPLY:
                key = (item.path.rpartition("/")[0], item.reasons)  # a line for each folder
            elif not every and item.fate is None:
                key = (item.title, item.reasons, item.advice)
            same.setdefault(key, []).append(item)
    return ((first, sum(1 + len(other.more) for other in others)) for first, *others in same.values())


def _fitting(told: Mapping[str, list[list[Line]]], room: int) -> dict[str, int]:
    """How many items of each group are listed: one of what raises and of what changes, then what there is room for."""
    shown = {group: int(group in (RAISE, CHANGE) and bool(items_of)) for group, items_of in told.items()}
    room -= sum(len(items_of[0]) for group, items_of in told.items() if shown[group])
    for group, items_of in told.items():
        for item_lines in items_of[shown[group] :]:
            if len(item_lines) > room:
                break
            shown[group] += 1
            room -= len(item_lines)
    return shown


def _left(members: list[Item], more: int, every: bool) -> str:
    """What is not listed, as counts."""
    if every:
        return ""
    counts = [f"{more} more"] if more > 0 else []
    folded = {kind: sum(item.folded == kind for item in members) for kind in (TESTS, PATCH_FILES)}
    counts += [f"{number} in {kind}" for kind, number in folded.items() if number]
    return f"{', '.join(counts)}; --all lists them" if counts else ""


def _told(
    item: Item, also: int, report: UpgradeReport, copies: Mapping[tuple[str, int], Changes], every: bool
) -> Iterator[Line]:
    """One item: where and what, why, and what to do; of a copy what upstream and the repository made of it."""
    where = "  " + report.scanned.from_here(item.path) + item.where.removeprefix(item.path)
    where += f" and {count(also, 'more file' if item.group == APPLY else 'more line')}" if also else ""
    fits = len(where) + 2 + len(item.title) <= width()
    yield [(where, "cyan"), (f"  {item.title}" if item.title and fits else "", "")]
    if not fits:
        yield from wrapped(item.title, 6)
    first, *others = item.reasons or ("",)
    more = f" (and {count(len(others), 'more reason')})" if others and not every else ""
    for reason in [f"{first}{more}", *(others if every else ())]:
        yield from wrapped(reason, 6)
    if item.advice:
        yield from wrapped(item.advice, 6, "-> ", "green")
    if item.fate is not None and (made := copies.get((item.fate.finding.path, item.fate.finding.line))):
        yield from _changes(made, report.new.label)


def _changes(made: Changes, release: str) -> Iterator[Line]:
    for head, text in ((f"upstream, {made.release} to {release}", made.upstream), ("yours", made.own)):
        yield [(f"      {head}: {'no change' if not text else ''}".rstrip(), "bold")]
        for line in text.splitlines()[2:]:
            yield [(f"        {line}", {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], ""))]


def closing(report: UpgradeReport, known: Sequence[Item]) -> Iterator[str]:
    """The last lines: what was read, what was not, and what to do next."""
    if not report.fates and not report.uses.read:
        yield f"No use of Megatron Core found in {count(report.scanned.files_scanned, 'file')}."
        return
    harmless = sum(not fate.is_idle for fate in report.of("harmless"))
    places = urgent(known)
    grouped = groups(fate.finding for fate in report.fates)
    beside = {"tests": "in tests", "patch_files": "in patch files"}
    apart = [f"{len(grouped[name])} {where}" for name, where in beside.items() if grouped[name]]
    rest = f" ({', '.join(apart)})" if apart else ""
    uses = f"{count(report.uses.read, 'use')} of Megatron in {count(report.uses.files, 'file')}"
    fine = f"; {count(harmless, 'patch is', 'patches are')} harmless" if harmless else ""
    yield f"Read: {uses} and {count(len(report.fates), 'patch', 'patches')}{rest}{fine}."
    if missing := unread(report):
        yield f"Not read: {missing}."
    release = f"megatron-core {report.new.label}"
    if not places:
        wrong = sum(item.group == ALREADY for item in known)
        also = f"; {count(wrong, 'place fits', 'places fit')} neither release" if wrong else ""
        yield f"Nothing that was read needs work before the move to {release}{also}."
        return
    files = sum(item.group == APPLY for item in places)
    needs = [f"{count(len(places) - files, 'place needs', 'places need')} work"] if len(places) > files else []
    needs += [f"{count(files, 'patch file has', 'patch files have')} to be tried"] if files else []
    text = f"{' and '.join(needs)} before you can {_move(report)} to {release}."
    safe, unsafe = (sum(item.fix == kind for item in places) for kind in ("safe", "unsafe"))
    if safe or unsafe:
        text += f" Next: `{migrate_command(report, safe=bool(safe))}` does {safe or unsafe} of them."
    yield text


def unread(report: UpgradeReport) -> str:
    """What of the repository no release could be asked for, in words."""
    said = []
    for package, number in report.uses.beyond.items():
        ways = {"--from": report.old, "--to": report.new}
        lack = {option: release.label for option, release in ways.items() if lacking(release, package)}
        wheels = f"which no wheel of megatron-core {' or '.join(lack.values())} holds"
        said.append(f"{count(number, 'use')} of {package}, {wheels}; `{' PATH` and `'.join(lack)} PATH` read checkouts")
    said += [f"{count(len(report.scanned.errors), 'file')} with errors"] if report.scanned.errors else []
    return "; ".join(said)


def _move(report: UpgradeReport) -> str:
    labels = (report.new.label, report.old.label)
    back = set(labels) <= set(RELEASES) and RELEASES.index(labels[0]) < RELEASES.index(labels[1])
    return "go back" if back else "upgrade"


_RULE = "MCU811"
_LOOKS = dict.fromkeys(HEADS, "plain") | {RAISE: "bad", CHANGE: "warn", APPLY: "warn", GO: "good"}


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


def html(
    report: UpgradeReport, known: Sequence[Item], summary: str, copies: Sequence[tuple[Fate, Changes]] = ()
) -> str:
    """Every item with its code; of a patch upstream's change and the proposed edit too."""
    edits = report.scanned.proposed() if any(finding.fix for finding in report.scanned.findings) else {}
    origin = origin_of(Path(report.scanned.top))
    made = {id(fate): changes for fate, changes in copies}
    cards = []
    for item in known:
        said = (*item.reasons, *([item.advice] if item.advice else ()))
        panes = _panes(item.fate, made.get(id(item.fate)), edits) if item.fate is not None else ()
        place = report.scanned.from_here(item.path) + item.where.removeprefix(item.path)
        link = origin.link(report.scanned.from_top(item.path), item.line)
        cards.append(Card(item.group, item.title, place, said, tuple(panes), "", item.folded or "code", link))
    title = f"Megatron Core {report.old.label} to {report.new.label}"
    return page(title, f"{head_of(report.scanned, origin)} {summary}", HEADS, {}, _LOOKS, cards)


def _panes(fate: Fate, changes: Changes | None, edits: dict[str, str]) -> Iterator[Pane]:
    finding = fate.finding
    yield Pane(f"the patch, line {finding.line}", finding.source)
    if changes is not None:
        yield Pane(f"upstream since {changes.release}", changes.upstream.rstrip("\n"), True)
        yield Pane("your changes to the copy", changes.own.rstrip("\n"), True)
    if finding.fix and finding.path in edits:
        yield Pane("what migrate would change in this file", edits[finding.path], True, is_open=False)
