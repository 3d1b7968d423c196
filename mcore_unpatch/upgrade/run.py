"""One upgrade report: scan, see what each patch depends on, compare the two releases, judge."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mcore_unpatch.findings import NO_PATCHES, Report
from mcore_unpatch.scan import report_of
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.search import Progress
from mcore_unpatch.survey import Options, Survey
from mcore_unpatch.upgrade.judge import URGENCIES, Fate, judge
from mcore_unpatch.upgrade.leaning import Leaning, leanings
from mcore_unpatch.upgrade.releases import Release


@dataclass(slots=True)
class UpgradeReport:
    """What an upgrade means for every patch that a scan found, the most urgent first."""

    scanned: Report
    old: Release
    new: Release
    fates: list[Fate] = field(default_factory=list)

    def of(self, urgency: str) -> list[Fate]:
        """The patches of one urgency."""
        return [fate for fate in self.fates if fate.urgency == urgency]

    def to_json(self) -> dict[str, Any]:
        """The report as plain data, version 1."""
        return {
            "version": 1,
            "root": self.scanned.root,
            "from": self.old.label,
            "to": self.new.label,
            "files_scanned": self.scanned.files_scanned,
            "counts": {urgency: len(self.of(urgency)) for urgency in URGENCIES},
            "patches": [fate.to_json() for fate in self.fates],
            "errors": [{"path": error.path, "message": error.message} for error in self.scanned.errors],
        }


def upgrade(
    paths: list[Path], options: Options, old: Release, new: Release, progress: Progress | None = None
) -> UpgradeReport:
    """Judge every patch below some paths for the step from one release to another."""
    options = replace(options, target=new.version, fixes=True, base=None, baseline=None, source=new.for_patch_files)
    survey = Survey(paths, options, progress)
    scanned = report_of(survey)
    project = Project(survey.files.exists, survey.files.read, survey.parsed)
    known: dict[str, dict[tuple[int, str], Leaning]] = {}
    fates = []
    for finding in scanned.findings:
        if finding.shape in NO_PATCHES:
            continue
        if finding.path not in known:
            is_python = finding.shape != "patch-file"
            project.begin()
            known[finding.path] = leanings(project.resolver(scanned.from_top(finding.path))) if is_python else {}
        fates.append(judge(finding, known[finding.path].get((finding.line, finding.target)), old, new))
    fates.sort(key=lambda fate: (URGENCIES.index(fate.urgency), fate.finding.sort_key))
    return UpgradeReport(scanned, old, new, fates)
