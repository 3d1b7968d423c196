"""One scan from the paths a user names to the report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mcore_unpatch.findings.finding import Finding, Report
from mcore_unpatch.repository.paths import from_here
from mcore_unpatch.stacks.sources import INFO
from mcore_unpatch.survey import places
from mcore_unpatch.survey.parallel import no_collection
from mcore_unpatch.survey.search import Progress
from mcore_unpatch.survey.survey import ScanOptions, Survey


@no_collection()
def scan(paths: list[Path], options: ScanOptions, progress: Progress | None = None) -> Report:
    """Scan files and folders; raises `UsageError` for what the user has to change."""
    return report_of(Survey(paths, options, progress))


def report_of(survey: Survey) -> Report:
    """What a survey found, for people and machines; paths are relative to the root of the scan."""
    found, options = survey.found, survey.options
    report = Report(str(found.root), len(found.python) + len(found.patches), notes=survey.notes, top=str(found.top))
    report.named = tuple(str(path) for path in survey.paths if path != Path())
    of_megatron = [path for path in found.python if f"/{path}".endswith(f"/{INFO}")]
    report.carried = tuple(from_here(Path(found.top, path.removesuffix(INFO))) for path in of_megatron)
    if options.base is not None or options.baseline is not None:
        report.only = "new"
    elif options.lock is not None:
        report.only = "unpinned"
    report.fixes_known = options.fixes
    if options.fixes:
        from mcore_unpatch.survey import fixes

        before = survey.findings
        fixable = any(map(fixes.may_be_fixed, before))
        if fixable:
            report.proposed = lambda: fixes.proposed(survey, before)

        def complete() -> list[Finding]:
            known = fixes.assessed(survey) if fixable else before
            project = survey.project()
            return places.with_places(known, survey.whole.own, survey.everything, project, found.shown)

        survey.findings = (
            survey.completed((str(found.root), fixable, sorted(found.links)), complete) if before else before
        )
    report.errors = sorted(replace(error, path=found.shown(error.path)) for error in survey.errors)
    report.judged = survey.judged

    def shown(findings: list[Finding]) -> list[Finding]:
        return sorted(
            (replace(finding, path=found.shown(finding.path)) for finding in findings), key=lambda one: one.sort_key
        )

    report.done = shown(survey.done)
    told = [*shown(survey.findings), *shown(survey.possible)]
    if options.baseline is not None:
        from mcore_unpatch.gate import baseline

        scanned = {found.shown(path) for path in (*found.python, *found.patches)}
        counts, place = baseline.load(options.baseline), (options.baseline, found.root, scanned)
        beyond, surplus = baseline.subtract(told, counts, *place, shown(survey.known))
        # Of what is new since the base, a baseline accepts what the change itself writes into it.
        told = beyond if survey.accepted is None else baseline.subtract(told, survey.accepted, *place)[0]
        report.notes += surplus
    report.findings = [finding for finding in told if options.reports(finding)]
    report.possible = len(told) - len(report.findings)
    return report
