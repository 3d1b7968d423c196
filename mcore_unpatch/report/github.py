"""Workflow commands that GitHub shows as annotations on a pull request."""

from __future__ import annotations

from mcore_unpatch.findings.finding import Report
from mcore_unpatch.repository import printable


def lines(report: Report, level: str = "error") -> list[str]:
    """One command per finding and per file that could not be analysed."""
    found = []
    for finding in report.findings:
        text = finding.message + (f"\n-> {finding.instead}" if finding.instead else "")
        title = f"{finding.rule} {finding.target}".strip() + (" (in a test)" if finding.in_test else "")
        file = _property(report.from_top(finding.path))
        place = f"file={file},line={finding.line},endLine={finding.end_line},col={finding.column}"
        found.append(f"::{level} {place},title={_property(title)}::{_data(text)}")
    found += [
        f"::error file={_property(report.from_top(error.path))}::{_data(error.message)}" for error in report.errors
    ]
    found += [f"::notice ::{_data(str(judged))}" for judged in report.judged if report.findings]
    found += [f"::warning ::{_data(note)}" for note in report.notes if note.startswith(("The baseline", "exclude"))]
    return found


def _data(text: str) -> str:
    return printable.lines(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
