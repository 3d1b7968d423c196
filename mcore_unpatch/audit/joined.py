"""Join what a program did with what `scan` reads: which line of code made which live patch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mcore_unpatch.audit.report import AuditReport, Deviation

if TYPE_CHECKING:
    from mcore_unpatch.findings.finding import Finding


@dataclass(frozen=True, slots=True)
class LivePatch:
    """A live patch, the line of the repository that made it, or the package that it comes from, and on which ranks."""

    deviation: Deviation
    ranks: tuple[str, ...]
    line: str = ""
    rule: str = ""
    package: str = ""

    def __str__(self) -> str:
        if self.line:
            return f"made by {self.line}{f' ({self.rule})' if self.rule else ''}"
        return f"no line of this repository: it comes from {self.package or self.deviation.by.file or 'elsewhere'}"


def join(
    reports: Sequence[AuditReport], findings: Sequence[Finding], root: Path
) -> tuple[list[LivePatch], list[Finding]]:
    """Each live patch with its line or package; and the patches that `scan` finds and that never ran."""
    by_key: dict[str, list[tuple[Deviation, AuditReport]]] = {}
    for report in reports:
        for one in report.deviations:
            by_key.setdefault(one.key, []).append((one, report))
    live = []
    for holders in by_key.values():
        deviation = holders[0][0]
        ranks = tuple(dict.fromkeys(report.rank for _, report in holders))
        if deviation.kind in ("stale", "file"):
            live.append(LivePatch(deviation, ranks))
            continue
        stacks = [r.stack for _, report in holders for r in report.rebindings if r.name == deviation.name]
        live.append(_joined(deviation, ranks, findings, root, [line for stack in stacks for line in stack]))
    seen = {patch.deviation.name for patch in live} | {r.name for report in reports for r in report.rebindings}
    return live, [finding for finding in findings if finding.target not in seen]


def _joined(
    deviation: Deviation, ranks: tuple[str, ...], findings: Sequence[Finding], root: Path, stack: list[str]
) -> LivePatch:
    about = [finding for finding in findings if finding.target == deviation.name]
    for finding in about:
        path = f"{root / finding.path}:"
        lines = (int(line.removeprefix(path).partition(" ")[0]) for line in stack if line.startswith(path))
        if any(finding.line <= number <= finding.end_line for number in lines):
            return LivePatch(deviation, ranks, f"{finding.path}:{finding.line}", finding.rule)
    inside = [origin for origin in (deviation.by, *deviation.order) if Path(origin.file).is_relative_to(root)]
    if about and (inside or (len(about) == 1 and not deviation.by.package)):
        return LivePatch(deviation, ranks, f"{about[0].path}:{about[0].line}", about[0].rule)
    if inside:
        line = f"{Path(inside[0].file).relative_to(root)}:{inside[0].line}"
        return LivePatch(deviation, ranks, line)
    return LivePatch(deviation, ranks, package=deviation.by.package)
