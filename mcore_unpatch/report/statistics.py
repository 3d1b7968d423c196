"""Counts per rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from mcore_unpatch.findings.finding import Report
from mcore_unpatch.findings.rules import rules
from mcore_unpatch.report.lines import Line


def as_data(report: Report) -> list[dict[str, Any]]:
    """Rules by falling count: what `--statistics` adds to the JSON report."""
    counts = Counter(finding.rule for finding in report.findings)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [{"rule": code, "name": rules()[code].name, "count": count} for code, count in ordered]


def lines(report: Report) -> Iterator[Line]:
    """And what it prints: a line for each rule."""
    for row in as_data(report):
        yield [(f"{row['count']:>5}  ", "bold"), (row["rule"], "cyan"), (f"  {row['name']}", "")]
