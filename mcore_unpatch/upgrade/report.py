"""The upgrade report for people and for machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mcore_unpatch.commands.options import OutputFormat
from mcore_unpatch.findings import Finding, Report
from mcore_unpatch.report.edits import proposed_edits
from mcore_unpatch.report.html import Card, Kind, Pane, page
from mcore_unpatch.report.lines import Line, count, show, wrapped
from mcore_unpatch.upgrade.fates import Fate
from mcore_unpatch.upgrade.merge import Merge
from mcore_unpatch.upgrade.run import UpgradeReport

HEADS = {
    "breaks": ("Breaks", "bold red"),
    "different": ("Silently different", "bold yellow"),
    "unnecessary": ("No longer needed", "bold green"),
    "harmless": ("Harmless", "bold"),
}
_LOOKS = {"breaks": "bad", "different": "warn", "unnecessary": "good", "harmless": "plain"}


def write(report: UpgradeReport, style: OutputFormat, merges: Sequence[tuple[Fate, Merge]] = ()) -> None:
    """Print the report in the format asked for; text shows the merges as well."""
    if style is OutputFormat.text:
        show(lines(report, dict(_by_place(merges))))
    elif style is OutputFormat.github:
        from mcore_unpatch.report import github

        print("\n".join(github.lines(_as_findings(report), "warning")))
    elif style is OutputFormat.concise:
        from mcore_unpatch.report import concise

        show(concise.lines(_as_findings(report)))
    elif style is OutputFormat.markdown:
        from mcore_unpatch.report import markdown

        print(markdown.page_of(_as_findings(report)), end="")
    elif style is OutputFormat.html:
        print(page_of(report, merges), end="")
    else:
        import json

        print(json.dumps(_data(report, style), indent=2))


def write_merged(merges: Sequence[tuple[Fate, Merge]]) -> None:
    """Say what was merged, and what was left."""
    done = sum(made.is_clean for _, made in merges)
    left = sum(bool(made.upstream) for _, made in merges) - done
    said = f"Merged upstream's changes into {count(done, 'copy', 'copies')}"
    said += f"; {left} left as {'it was' if left == 1 else 'they were'}" if left else ""
    show(wrapped(f"{said}. `unpatch undo` reverts it." if done else f"{said}.", 0), stderr=True)


def lines(report: UpgradeReport, merges: Mapping[tuple[str, int], Merge] | None = None) -> Iterator[Line]:
    """The report, line by line, the most urgent first."""
    yield [(f"From megatron-core {report.old.label} to {report.new.label}", "bold")]
    for urgency, (head, style) in HEADS.items():
        if fates := report.of(urgency):
            yield []
            yield [(f"{head} ({len(fates)})", style)]
            for fate in fates:
                yield from _fate(fate, report.scanned.from_here(fate.finding.path))
                if made := (merges or {}).get(_place(fate)):
                    yield from _merge(made, report.new.label)
    yield []
    yield from wrapped(summary(report), 0)


def _fate(fate: Fate, path: str) -> Iterator[Line]:
    finding = fate.finding
    yield [(f"  {path}:{finding.line}", "cyan"), (f"  {'.'.join(finding.target.split('.')[-2:])}", "")]
    for reason in fate.reasons:
        yield from wrapped(reason, 6, "= ")
    if finding.fix and fate.urgency != "harmless":
        yield from wrapped(_remedy(finding), 6, "-> ", "green")


def _remedy(finding: Finding) -> str:
    """What a command does about it."""
    command = "unpatch migrate" if finding.fix == "safe" else "unpatch migrate --unsafe-fixes"
    return f"`{command}` {'deletes' if finding.verdict == 'delete' else 'rewrites'} it"


def _merge(made: Merge, release: str) -> Iterator[Line]:
    fits = "no conflict; --write merges them"
    if made.conflicts:
        fits = f"{count(made.conflicts, 'conflict')}; merge by hand"
    elif made.unknown:
        fits = f"no conflict, but the file lacks {', '.join(f'`{name}`' for name in made.unknown)}; import it first"
    for head, text in ((f"upstream, {made.release} to {release}", made.upstream), ("yours", made.own)):
        yield [(f"      {head}: {'no change' if not text else ''}".rstrip(), "bold")]
        for line in text.splitlines()[2:]:
            yield [(f"        {line}", {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], ""))]
    yield from wrapped(fits if made.upstream else "nothing to merge", 6, "=> ", "bold")


def _place(fate: Fate) -> tuple[str, int]:
    return fate.finding.path, fate.finding.line


def _by_place(merges: Sequence[tuple[Fate, Merge]]) -> Iterator[tuple[tuple[str, int], Merge]]:
    return ((_place(fate), made) for fate, made in merges)


def summary(report: UpgradeReport) -> str:
    """The last line: how many patches need work, and how many of them a command does."""
    if not report.fates:
        return f"No patch of Megatron Core found; {count(report.scanned.files_scanned, 'file')} scanned."
    urgent = [*report.of("breaks"), *report.of("different")]
    total = count(len(report.fates), "patch", "patches")
    if not urgent:
        return f"None of {total} needs work before the upgrade to megatron-core {report.new.label}."
    safe = sum(fate.finding.fix == "safe" for fate in urgent)
    unsafe = sum(fate.finding.fix == "unsafe" for fate in urgent)
    need = "needs" if len(urgent) == 1 else "need"
    text = f"{len(urgent)} of {total} {need} work before you can upgrade to megatron-core {report.new.label}."
    if safe:
        text += f" `unpatch migrate` does {safe} of them."
    if unsafe:
        text += f" `unpatch migrate --unsafe-fixes` does {unsafe}{' more' if safe else ' of them'}."
    return text


def _as_findings(report: UpgradeReport) -> Report:
    """The urgent patches as findings whose message says what happens to them."""
    findings = [
        replace(fate.finding, message="; ".join(fate.reasons)) for fate in report.fates if fate.urgency != "harmless"
    ]
    return replace(report.scanned, findings=findings)


def _data(report: UpgradeReport, style: OutputFormat) -> dict[str, object] | list[dict[str, object]]:
    if style is OutputFormat.sarif:
        from mcore_unpatch.report import sarif

        return sarif.as_data(_as_findings(report))
    if style is OutputFormat.gitlab:
        from mcore_unpatch.report import gitlab

        return gitlab.as_data(_as_findings(report))
    return report.to_json()


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
            said.append(_remedy(finding))
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
    new = fate.case.new if fate.case is not None else None
    if new is None or new.function is None or new.home is None:
        return ""
    text = (Path(report.scanned.top) / new.home.model.path).read_text(encoding="utf-8", errors="replace")
    return "\n".join(text.splitlines()[new.function.lineno - 1 : new.function.end_lineno])
