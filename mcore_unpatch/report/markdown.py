"""A report for a pull request: the numbers, and a table of all findings, tests folded away."""

from __future__ import annotations

import re

from mcore_unpatch.findings.finding import Finding, Report
from mcore_unpatch.report.counts import EFFECTS, FATES, fate_of, groups, urgency
from mcore_unpatch.report.lines import count
from mcore_unpatch.report.screen import brief

_HEADS = {
    "code": "In code",
    "tests": "In tests",
    "patch_files": "Patch files",
    "possible": "Possible ones",
    "other": "Besides",
}


def page_of(report: Report) -> str:
    """The whole comment."""
    files = count(report.files_scanned, "file")
    lines = ["### Patches of Megatron Core", "", " ".join([f"{files} read.", *map(str, report.judged)])]
    if not report.findings:
        lines[-1] = f"No {'new ' if report.only_new else ''}patch found; {files} scanned."
    for name, findings in groups(report.findings).items():
        if findings:
            told = f" ({brief(findings)})" if report.fixes_known else ""
            lines += ["", f"<details{' open' if name == 'code' else ''}>"]
            lines += [f"<summary>{_HEADS[name]}: {len(findings)}{told}</summary>", ""]
            lines += ["| where | rule | what | |", "|---|---|---|---|"]
            lines += [_row(finding, report) for finding in sorted(findings, key=urgency)]
            lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def _row(finding: Finding, report: Report) -> str:
    place = f"`{report.from_top(finding.path)}:{finding.line}`"
    means = [EFFECTS.get(finding.effect, ""), FATES[fate_of(finding)] if report.fixes_known else ""]
    cells = (place, finding.rule, finding.message, "; ".join(filter(None, means)))
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """One line without what ends a cell; what stands outside of code acts as nothing."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()).replace("|", "\\|"))
    return "".join(part if part.startswith("`") else re.sub(r"([<>*_@#\[\]])", r"\\\1", part) for part in parts)
