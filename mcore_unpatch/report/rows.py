"""One line per finding, as editors and other linters have it, and one line per rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from mcore_unpatch.findings.finding import Report
from mcore_unpatch.findings.rules import rules
from mcore_unpatch.report.lines import Line


def concise(report: Report) -> Iterator[Line]:
    """`path:line:column CODE message`, by file and line."""
    for finding in report.findings:
        place = f"{report.from_here(finding.path)}:{finding.line}:{finding.column}"
        yield [(place, "cyan"), (f" {finding.rule} ", "bold red"), (" ".join(finding.message.split()), "")]


def statistics_data(report: Report) -> list[dict[str, Any]]:
    """Rules by falling count: what `--statistics` adds to the JSON report."""
    counts = Counter(finding.rule for finding in report.findings)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [{"rule": code, "name": rules()[code].name, "count": count} for code, count in ordered]


def statistics(report: Report) -> Iterator[Line]:
    """And what it prints: a line for each rule."""
    for row in statistics_data(report):
        yield [(f"{row['count']:>5}  ", "bold"), (row["rule"], "cyan"), (f"  {row['name']}", "")]
