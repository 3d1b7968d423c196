"""One scan from the paths a user names to the report."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from mcore_unpatch.findings.finding import Finding, Report
from mcore_unpatch.findings.verdicts import STEPS
from mcore_unpatch.repository.paths import from_here, is_test
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.scanner.sources.parsing import Unreadable
from mcore_unpatch.survey.parallel import no_collection
from mcore_unpatch.survey.search import Progress
from mcore_unpatch.survey.survey import ScanOptions, Survey

_INFO = "megatron/core/package_info.py"
_BY_SPEC = "MCU402"  # what a ModuleSpec answers
_MAKERS = tuple(  # each begins with bytes of its own, which are searched for fast
    re.compile(maker + rb"\b(?:\s+as\s+(\w+))?")
    for maker in (rb"ModuleSpec(?<!\wModuleSpec)", rb"get_(?<!\wget_)\w*_specs?\w*")
)
_MOST_SHOWN = 2
_Place = tuple[str, int, str]  # file, line, what is called


@no_collection()
def scan(paths: list[Path], options: ScanOptions, progress: Progress | None = None) -> Report:
    """Scan files and folders; raises `UsageError` for what the user has to change."""
    return report_of(Survey(paths, options, progress))


def report_of(survey: Survey) -> Report:
    """What a survey found, for people and machines; paths are relative to the root of the scan."""
    found, options = survey.found, survey.options
    report = Report(str(found.root), len(found.python) + len(found.patches), notes=survey.notes, top=str(found.top))
    report.named = tuple(str(path) for path in survey.paths if path != Path())
    of_megatron = [path for path in found.python if f"/{path}".endswith(f"/{_INFO}")]
    report.carried = tuple(from_here(Path(found.top, path.removesuffix(_INFO))) for path in of_megatron)
    report.only_new = options.base is not None or options.baseline is not None
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
            return _with_places(known, survey.whole.own, project, found.shown)

        survey.findings = (
            survey.completed((str(found.root), fixable, sorted(found.links)), complete) if before else before
        )
    from mcore_unpatch.writing import journal

    if journal.may_exist(found.top):
        from mcore_unpatch.writing.recovery import describe_interrupted

        report.notes += [line for line in [describe_interrupted(found.top)] if line]
    report.errors = sorted(replace(error, path=found.shown(error.path)) for error in survey.errors)
    report.judged = survey.judged

    def shown(findings: list[Finding]) -> list[Finding]:
        return sorted(
            (replace(finding, path=found.shown(finding.path)) for finding in findings), key=lambda one: one.sort_key
        )

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


def _with_places(
    findings: list[Finding], paths: Iterable[str], project: Project, shown: Callable[[str], str]
) -> list[Finding]:
    """The findings, those that a ModuleSpec answers with one step more, if the repository makes specs."""
    if not any(map(_asks_for_a_spec, findings)):
        return findings
    places = [place for path in paths if not is_test(path) and (place := _first_spec(path, project))]
    if not places:
        return findings
    return [
        replace(one, steps=(*one.steps, _where_specs_are(one, places, shown))) if _asks_for_a_spec(one) else one
        for one in findings
    ]


def _asks_for_a_spec(finding: Finding) -> bool:
    return finding.rule == _BY_SPEC and finding.verdict == STEPS and bool(finding.steps)


def _first_spec(path: str, project: Project) -> _Place | None:
    """The first call of one of Megatron's spec functions, or of `ModuleSpec`, in a file."""
    try:
        data = project.data(path)
        makers = (match for maker in _MAKERS for match in maker.finditer(data)) if b"megatron" in data else ()
        names = {match[1] or match[0] for match in makers}
        called = [name.decode() for name in sorted(names) if re.search(rb"%b\s*\(" % name, data)]
        if not called:
            return None
        project.begin()
        resolver = project.resolver(path)
        calls = sorted((call for name in called for call in resolver.calls_of(name)), key=lambda one: one[0].lineno)
        for line, same in groupby(calls, key=lambda one: one[0].lineno):
            made = [ref.name.rpartition(".")[2] for call, at in same if (ref := at.expr(call.func)) and ref.is_core]
            if made:
                return path, line, min(made)
    except (OSError, Unreadable, RecursionError):
        return None
    return None


def _where_specs_are(finding: Finding, places: list[_Place], shown: Callable[[str], str]) -> str:
    """The files with such places, the nearest to a finding first, each with its first line."""
    first = {path: (line, name) for path, line, name in places}
    near = sorted(first, key=lambda path: (-len(os.path.commonpath([path, finding.path])), path))
    said = [f"{shown(path)}:{first[path][0]} (`{first[path][1]}`)" for path in near[:_MOST_SHOWN]]
    more = len(near) - len(said)
    others = f" and {more} more {'file' if more == 1 else 'files'}" if more else ""
    return f"Specs are made here: {', '.join(said)}{others}."
