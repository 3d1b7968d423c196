"""The report for people: grouped by file, the line itself quoted, what each patch can become."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from mcore_unpatch import printable
from mcore_unpatch.findings import Finding, Report
from mcore_unpatch.rules import rules

# A line of output: pieces of text with a style each, "" for none.
Line = list[tuple[str, str]]

_SEAM_STYLE = {"value-head": "yellow", "none": "red"}
_QUOTED_LINES = 3


def write(report: Report, statistics: bool) -> None:
    """Print a report: in colour on a terminal, as plain text in a pipe."""
    show(lines(report, statistics))


def show(output: Iterator[Line]) -> None:
    """Print lines; nothing in them is taken for markup, so brackets in code stay."""
    if not sys.stdout.isatty():
        for line in output:
            print(printable.line("".join(text for text, _ in line)))
        return
    from rich.text import Text

    from mcore_unpatch.report.console import PlainConsole

    console = PlainConsole()
    for line in output:
        console.print(Text.assemble(*line))


def lines(report: Report, statistics: bool) -> Iterator[Line]:
    """The report, line by line."""
    for path, group in groupby(report.findings, key=lambda finding: finding.path):
        yield [(report.from_here(path), "bold")]
        for finding in group:
            yield from _finding(finding)
        yield []
    if statistics and report.findings:
        yield from _statistics(report)
        yield []
    for judged in report.judged if report.findings else ():
        yield [(str(judged), "dim")]
    yield _summary(report)


def _finding(finding: Finding) -> Iterator[Line]:
    head: Line = [
        (f"  {finding.line}:{finding.column}", "cyan"),
        (f"  {finding.rule}", "bold red"),
        (f"  {finding.target or rules()[finding.rule].name}", ""),
        (f"  [{finding.seam}]", _SEAM_STYLE.get(finding.seam, "green")),
    ]
    head += [
        (f"  {word}", "dim")
        for word, on in (("temporary", finding.temporary), ("likely", finding.confidence == "likely"))
        if on
    ]
    yield head
    quoted = finding.source.split("\n")
    for offset, text in enumerate(quoted[:_QUOTED_LINES]):
        yield [(f"  {finding.line + offset:>6} | ", "dim"), (text.expandtabs(4).rstrip(), "")]
    if len(quoted) > _QUOTED_LINES:
        yield [("         | ...", "dim")]
    yield [(f"         = {finding.message}", "")]
    if finding.replacement:
        yield [("         -> ", "green"), (finding.replacement, "")]
    if finding.related:
        parts = ", ".join(f"{item.role} {item.line}" for item in finding.related)
        yield [(f"         also {parts}", "dim")]


def _summary(report: Report) -> Line:
    """The last line: how many patches, and how many have an official replacement."""
    patches = [finding for finding in report.findings if not finding.rule.startswith("MCU0")]
    files = _count(report.files_scanned, "file") + " scanned"
    new = "new " if report.only_new else ""
    if not report.findings:
        return [(f"No {new}patch of Megatron Core found; {files}.", "green")]
    with_seam = sum(finding.seam != "none" for finding in patches)
    line: Line = [
        (_count(len(patches), f"{new}patch", f"{new}patches") + " of Megatron Core", "bold"),
        (f", {with_seam} with an official replacement; {files}.", ""),
    ]
    if others := len(report.findings) - len(patches):
        line.append((f" {_count(others, 'unused ignore comment')}.", ""))
    return line


def _statistics(report: Report) -> Iterator[Line]:
    counts = Counter(finding.rule for finding in report.findings)
    for code, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        rule = rules()[code]
        yield [(f"{count:>5}  ", "bold"), (f"{code}  {rule.name}: {rule.summary}", "")]


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
