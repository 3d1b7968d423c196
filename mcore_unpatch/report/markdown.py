"""A report for a pull request: the numbers, and a table of all findings, tests folded away."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

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
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield "### Patches of Megatron Core"
    yield ""
    if not report.findings:
        yield f"No {'new ' if report.only_new else ''}patch found; {count(report.files_scanned, 'file')} scanned."
        return
    yield " ".join([f"{count(report.files_scanned, 'file')} read.", *map(str, report.judged)])
    for name, findings in groups(report.findings).items():
        if findings:
            told = f" ({brief(findings)})" if report.fixes_known else ""
            yield ""
            yield f"<details{' open' if name == 'code' else ''}>"
            yield f"<summary>{_HEADS[name]}: {len(findings)}{told}</summary>"
            yield ""
            yield from _table(findings, report)
            yield ""
            yield "</details>"


def _table(findings: Sequence[Finding], report: Report) -> Iterator[str]:
    yield "| where | rule | what | |"
    yield "|---|---|---|---|"
    for finding in sorted(findings, key=urgency):
        place = f"`{report.from_top(finding.path)}:{finding.line}`"
        means = [EFFECTS.get(finding.effect, ""), FATES[fate_of(finding)] if report.fixes_known else ""]
        cells = (place, finding.rule, finding.message, "; ".join(filter(None, means)))
        yield f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """One line without what ends a cell; what stands outside of code acts as nothing."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()).replace("|", "\\|"))
    return "".join(part if part.startswith("`") else re.sub(r"([<>*_@#\[\]])", r"\\\1", part) for part in parts)
