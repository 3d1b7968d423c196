"""Reports for services: GitHub's annotations, GitLab's code quality, SARIF 2.1.0 for code scanning."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mcore_unpatch.findings.finding import Finding, Report
from mcore_unpatch.findings.rules import rules
from mcore_unpatch.repository import printable

_SEVERITY = {"certain": "major", "likely": "minor"}
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def github(report: Report, level: str = "error") -> list[str]:
    """One command per finding and per file that could not be analysed."""
    found = []
    for finding in report.findings:
        text = finding.message + (f"\n-> {finding.instead}" if finding.instead else "")
        title = f"{finding.rule} {finding.target}".strip() + (" (in a test)" if finding.in_test else "")
        file = _parameter(report.from_top(finding.path))
        place = f"file={file},line={finding.line},endLine={finding.end_line},col={finding.column}"
        found.append(f"::{level} {place},title={_parameter(title)}::{_command(text)}")
    found += [
        f"::error file={_parameter(report.from_top(error.path))}::{_command(error.message)}" for error in report.errors
    ]
    found += [f"::notice ::{_command(str(judged))}" for judged in report.judged if report.findings]
    found += [f"::warning ::{_command(note)}" for note in report.notes if note.startswith(("The baseline", "exclude"))]
    return found


def _command(text: str) -> str:
    return printable.lines(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _parameter(text: str) -> str:
    return _command(text).replace(":", "%3A").replace(",", "%2C")


def gitlab(report: Report) -> list[dict[str, Any]]:
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


def sarif(report: Report) -> dict[str, Any]:
    """The report as a SARIF log with one run; code scanning services take its paths as relative to the repository."""
    findings = [replace(finding, path=report.from_top(finding.path)) for finding in report.findings]
    table = list(rules().values())
    index = {rule.code: position for position, rule in enumerate(table)}
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "mcore-unpatch",
                        "semanticVersion": version("mcore-unpatch"),
                        "informationUri": "https://github.com/mcore-unpatch/mcore-unpatch",
                        "rules": [
                            {
                                "id": rule.code,
                                "name": "".join(part.capitalize() for part in rule.name.split("-")),
                                "shortDescription": {"text": rule.summary},
                                "fullDescription": {"text": rule.why},
                                "help": {"text": f"Before:\n{rule.before}\n\nAfter:\n{rule.after}\n"},
                                **({"helpUri": rule.link} if rule.link else {}),
                                "defaultConfiguration": {"level": "warning"},
                            }
                            for rule in table
                        ],
                    }
                },
                "originalUriBaseIds": {"ROOT": {"uri": Path(report.top or report.root).as_uri() + "/"}},
                "columnKind": "unicodeCodePoints",
                "results": [_result(finding, index) for finding in findings],
                "invocations": [
                    {
                        "executionSuccessful": not report.errors,
                        "toolExecutionNotifications": [
                            *({"level": "note", "message": {"text": str(judged)}} for judged in report.judged),
                            *(_notification(error.message, report.from_top(error.path)) for error in report.errors),
                        ],
                    }
                ],
            }
        ],
    }


def _notification(text: str, path: str) -> dict[str, Any]:
    place = {"physicalLocation": {"artifactLocation": _artifact(path)}}
    return {"level": "error", "message": {"text": text}, "locations": [place]}


def _result(finding: Finding, index: dict[str, int]) -> dict[str, Any]:
    text = finding.message
    if finding.instead:
        text += f". Instead: {finding.instead}"
    text += "".join(f". On {group}" for group in finding.assessment.on_stacks)
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": index[finding.rule],
        "level": "warning" if finding.confidence == "certain" else "note",
        "message": {"text": text},
        "locations": [_location(finding.path, finding.line, finding.column, finding.end_line)],
        # The same patch on another line is the same alert.
        "partialFingerprints": {"patch/v1": fingerprint(finding)},
        "properties": {
            "target": finding.target,
            "shape": finding.shape,
            "seam": finding.seam,
            "fix": finding.fix,
            "in_test": finding.in_test,
            **{name: finding.to_json()[name] for name in ("verdict", "evidence", "steps")},
            **({"stacks": finding.to_json()["stacks"]} if finding.assessment.on_stacks else {}),
        },
    }
    if finding.related:
        result["relatedLocations"] = [
            {**_location(finding.path, item.line), "id": number, "message": {"text": item.role}}
            for number, item in enumerate(finding.related)
        ]
    return result


def _location(path: str, line: int, column: int | None = None, end_line: int | None = None) -> dict[str, Any]:
    region: dict[str, int] = {"startLine": line}
    if column is not None:
        region["startColumn"] = column
    if end_line is not None:
        region["endLine"] = end_line
    return {"physicalLocation": {"artifactLocation": _artifact(path), "region": region}}


def _artifact(path: str) -> dict[str, str]:
    return {"uri": quote(path, errors="surrogateescape"), "uriBaseId": "ROOT"}


def fingerprint(finding: Finding) -> str:
    """What stays the same when lines move."""
    text = "\0".join((finding.rule, finding.path, finding.target, "".join(finding.source.split())))
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:32]
