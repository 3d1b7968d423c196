"""Findings and reports as plain data: the interface for machines, version 1."""

from __future__ import annotations

from typing import Any

from mcore_unpatch.findings.finding import BY_HAND, Finding, Report
from mcore_unpatch.say.findings import evidence, message

_TOLD = ("rule", "path", "line", "column", "end_line", "target", "shape", "seam", "confidence", "temporary", "in_test")


def of(finding: Finding) -> dict[str, Any]:
    """A finding as plain data."""
    data: dict[str, Any] = {name: getattr(finding, name) for name in (*_TOLD, "fix")}
    data |= {"message": message(finding), "replacement": finding.instead}
    data["live"], data["depends"] = str(finding.live), list(finding.live.depends)
    data["verdict"], data["evidence"] = finding.verdict, evidence(finding)
    data["steps"] = list(finding.steps) if finding.verdict == BY_HAND else []
    data["related"] = [{"line": item.line, "role": item.role} for item in finding.related]
    if finding.touches:
        data["touches"] = list(finding.touches)
    if finding.upstream:
        data["upstream"] = finding.upstream
    if groups := finding.assessment.on_stacks:
        data["stacks"] = [
            {"stacks": list(one.stacks), "outcome": one.outcome, "verdict": one.verdict} for one in groups
        ]
    return data


def of_report(report: Report) -> dict[str, Any]:
    """A scan as plain data."""
    return {
        "version": 1,
        "root": report.root,
        "files_scanned": report.files_scanned,
        "judged": [judged.to_json() for judged in report.judged],
        "in_tests": report.in_tests,
        "findings": [of(finding) for finding in report.findings],
        "done": [of(finding) for finding in report.done],
        "errors": [{"path": error.path, "message": error.message} for error in report.errors],
    }
