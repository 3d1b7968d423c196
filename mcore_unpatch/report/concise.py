"""One line per finding, as editors and other linters have it: `path:line:column CODE message`."""

from __future__ import annotations

from collections.abc import Iterator

from mcore_unpatch.findings.finding import Report
from mcore_unpatch.report.lines import Line


def lines(report: Report) -> Iterator[Line]:
    """The findings, by file and line."""
    for finding in report.findings:
        place = f"{report.from_here(finding.path)}:{finding.line}:{finding.column}"
        yield [(place, "cyan"), (f" {finding.rule} ", "bold red"), (" ".join(finding.message.split()), "")]
