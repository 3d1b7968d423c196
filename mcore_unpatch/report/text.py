"""The report for people: grouped by file, the line itself quoted, what each patch can become."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from rich.console import Console
from rich.text import Text

from mcore_unpatch.findings import Finding, Report
from mcore_unpatch.rules import rules

_SEAM_STYLE = {
    "output": "green",
    "schedule": "green",
    "mtp": "green",
    "config": "green",
    "value-head": "yellow",
    "none": "red",
}
_QUOTED_LINES = 3


def write(report: Report, console: Console, statistics: bool) -> None:
    """Print a report; markup is never interpreted, so brackets in code stay."""
    for path, group in groupby(report.findings, key=lambda finding: finding.path):
        console.print(Text(path, style="bold"))
        for finding in group:
            _finding(finding, console)
        console.print()
    if statistics:
        _statistics(report, console)
    console.print(summary(report))


def _finding(finding: Finding, console: Console) -> None:
    head = Text("  ")
    head.append(f"{finding.line}:{finding.column}", style="cyan")
    head.append(f"  {finding.rule}", style="bold red")
    head.append(f"  {finding.target or rules()[finding.rule].name}")
    head.append(f"  [{finding.seam}]", style=_SEAM_STYLE[finding.seam])
    if finding.temporary:
        head.append("  temporary", style="dim")
    if finding.confidence == "likely":
        head.append("  likely", style="dim")
    console.print(head)
    lines = finding.source.splitlines()
    for offset, line in enumerate(lines[:_QUOTED_LINES]):
        console.print(Text.assemble((f"  {finding.line + offset:>6} | ", "dim"), line.expandtabs(4).rstrip()))
    if len(lines) > _QUOTED_LINES:
        console.print(Text("         | ...", style="dim"))
    console.print(Text(f"         = {finding.message}"))
    if finding.replacement:
        console.print(Text.assemble("         ", ("-> ", "green"), finding.replacement))
    if finding.related:
        parts = ", ".join(f"{item.role} {item.line}" for item in finding.related)
        console.print(Text(f"         also {parts}", style="dim"))


def summary(report: Report) -> Text:
    """The last line: how many patches, and how many have an official replacement."""
    patches = [finding for finding in report.findings if not finding.rule.startswith("MCU0")]
    files = f"{report.files_scanned} file{'s' if report.files_scanned != 1 else ''} scanned"
    if not report.findings:
        return Text(f"No patch of Megatron Core found; {files}.", style="green")
    text = Text(f"{len(patches)} patch{'es' if len(patches) != 1 else ''} of Megatron Core", style="bold")
    with_seam = sum(finding.seam != "none" for finding in patches)
    text.append(f", {with_seam} with an official replacement; {files}.")
    others = len(report.findings) - len(patches)
    if others:
        text.append(f" {others} unused ignore comment{'s' if others != 1 else ''}.")
    return text


def _statistics(report: Report, console: Console) -> None:
    counts = Counter(finding.rule for finding in report.findings)
    for code, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        rule = rules()[code]
        console.print(Text.assemble((f"{count:>5}  ", "bold"), f"{code}  {rule.name}: {rule.summary}"))
    if counts:
        console.print()
