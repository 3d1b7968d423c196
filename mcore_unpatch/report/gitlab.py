"""GitLab's code quality report: what a merge request shows beside the lines."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

from mcore_unpatch.findings.finding import Report
from mcore_unpatch.report.sarif import fingerprint

_SEVERITY = {"certain": "major", "likely": "minor"}


def as_data(report: Report) -> list[dict[str, Any]]:
    """One issue per finding and per file that could not be analysed; the same patch keeps its fingerprint."""
    issues = []
    seen: Counter[str] = Counter()
    for finding in report.findings:
        text = finding.message + (f". Instead: {finding.instead}" if finding.instead else "")
        mark = fingerprint(finding)
        seen[mark] += 1
        mark = mark if seen[mark] == 1 else f"{mark}-{seen[mark]}"  # GitLab shows only one of those that share it
        path = report.from_top(finding.path)
        issues.append(_issue(text, finding.rule, mark, _SEVERITY.get(finding.confidence, "info"), path, finding.line))
    for error in report.errors:
        mark = hashlib.sha256(f"{error.path}\0{error.message}".encode(errors="surrogateescape")).hexdigest()[:32]
        issues.append(_issue(error.message, "unreadable", mark, "critical", report.from_top(error.path), 1))
    return issues


def _issue(text: str, rule: str, mark: str, severity: str, path: str, line: int) -> dict[str, Any]:
    return {
        "description": text,
        "check_name": rule,
        "fingerprint": mark,
        "severity": severity,
        "location": {"path": path, "lines": {"begin": line}},
    }
