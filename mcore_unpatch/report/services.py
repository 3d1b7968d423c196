"""Reports for services: GitHub's annotations, GitLab's code quality, SARIF 2.1.0 for code scanning."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mcore_unpatch.findings.finding import Finding, Report
from mcore_unpatch.findings.rules import rules
from mcore_unpatch.repository.paths import printable_lines

_SEVERITY = {"certain": "major", "likely": "minor"}
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def github(report: Report, level: str = "error") -> list[str]:
    """One command per finding and per file that could not be analysed."""
    found = []
    for finding in report.findings:
        text = finding.message + (f"\n-> {finding.instead}" if finding.instead else "")
        title = f"{finding.rule} {finding.subject}".strip() + (" (in a test)" if finding.in_test else "")
        file = _parameter(report.from_top(finding.path))
        place = f"file={file},line={finding.line},endLine={finding.end_line},col={finding.column}"
        found.append(f"::{level} {place},title={_parameter(title)}::{_command(text)}")
    unread = ((_parameter(report.from_top(error.path)), error.message) for error in report.errors)
    found += [f"::error file={file}::{_command(message)}" for file, message in unread]
    found += [f"::notice ::{_command(str(judged))}" for judged in report.judged if report.findings]
    found += [f"::warning ::{_command(note)}" for note in report.notes if note.startswith(("The baseline", "exclude"))]
    return found


def _command(text: str) -> str:
    return printable_lines(text).replace("%", "%25").replace("\n", "%0A")


def _parameter(text: str) -> str:
    return _command(text).replace(":", "%3A").replace(",", "%2C")


def gitlab(report: Report) -> list[dict[str, Any]]:
    """One issue per finding and per file that could not be analysed; the same patch keeps its fingerprint."""
    rows = []
    seen: Counter[str] = Counter()
    for finding in report.findings:
        text = finding.message + (f". Instead: {finding.instead}" if finding.instead else "")
        mark = fingerprint(finding)
        seen[mark] += 1
        mark = mark if seen[mark] == 1 else f"{mark}-{seen[mark]}"  # GitLab shows only one of those that share it
        rows.append((text, finding.rule, mark, _SEVERITY.get(finding.confidence, "info"), finding.path, finding.line))
    unread = ((error.message, error.path, _digest(error.path, error.message)) for error in report.errors)
    rows += [(message, "unreadable", mark, "critical", path, 1) for message, path, mark in unread]
    return [
        {
            "description": text,
            "check_name": rule,
            "fingerprint": mark,
            "severity": severity,
            "location": {"path": report.from_top(path), "lines": {"begin": line}},
        }
        for text, rule, mark, severity, path, line in rows
    ]


def sarif(report: Report) -> dict[str, Any]:
    """The report as a SARIF log with one run; code scanning services take its paths as relative to the repository."""
    from importlib.metadata import version  # with a parser of mail, which other reports do without

    table = list(rules().values())
    index = {rule.code: position for position, rule in enumerate(table)}
    driver = {
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
    told: list[dict[str, Any]] = [{"level": "note", "message": {"text": str(judged)}} for judged in report.judged]
    for error in report.errors:
        place = _location(report.from_top(error.path))
        told.append({"level": "error", "message": {"text": error.message}, "locations": [place]})
    run = {
        "tool": {"driver": driver},
        "originalUriBaseIds": {"ROOT": {"uri": Path(report.top or report.root).as_uri() + "/"}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, report.from_top(finding.path), index) for finding in report.findings],
        "invocations": [{"executionSuccessful": not report.errors, "toolExecutionNotifications": told}],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(finding: Finding, path: str, index: dict[str, int]) -> dict[str, Any]:
    text = finding.message + (f". Instead: {finding.instead}" if finding.instead else "")
    text += "".join(f". On {group}" for group in finding.assessment.on_stacks)
    region = {"startLine": finding.line, "startColumn": finding.column, "endLine": finding.end_line}
    data = finding.to_json()
    shown = ["target", "shape", "seam", "fix", "in_test", "verdict", "evidence", "steps"]
    shown += ["stacks"] if finding.assessment.on_stacks else []
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": index[finding.rule],
        "level": "warning" if finding.confidence == "certain" else "note",
        "message": {"text": text},
        "locations": [_location(path, region)],
        # The same patch on another line is the same alert.
        "partialFingerprints": {"patch/v1": fingerprint(replace(finding, path=path))},
        "properties": {name: data[name] for name in shown},
    }
    if finding.related:
        places = [(_location(path, {"startLine": item.line}), item.role) for item in finding.related]
        told = [{**at, "id": number, "message": {"text": role}} for number, (at, role) in enumerate(places)]
        result["relatedLocations"] = told
    return result


def _location(path: str, region: dict[str, int] | None = None) -> dict[str, Any]:
    place: dict[str, Any] = {"uri": quote(path, errors="surrogateescape"), "uriBaseId": "ROOT"}
    return {"physicalLocation": {"artifactLocation": place, **({"region": region} if region else {})}}


def fingerprint(finding: Finding) -> str:
    """What stays the same when lines move."""
    return _digest(finding.rule, finding.path, finding.target, "".join(finding.source.split()))


def _digest(*facts: str) -> str:
    return hashlib.sha256("\0".join(facts).encode(errors="surrogateescape")).hexdigest()[:32]
