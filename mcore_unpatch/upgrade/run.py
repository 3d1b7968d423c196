"""One upgrade report: every use of Megatron and every patch, judged for the step between two releases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mcore_unpatch.findings.finding import NO_PATCHES, Finding, Report
from mcore_unpatch.findings.rules import UNUSED_IGNORE
from mcore_unpatch.judge.asked import is_replaced
from mcore_unpatch.judge.case import Case
from mcore_unpatch.judge.statement import Statement
from mcore_unpatch.library.model import Model
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import parse_version
from mcore_unpatch.repository.paths import is_test, relative
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.related import restores
from mcore_unpatch.stacks.sources import MegatronSource
from mcore_unpatch.survey import detect
from mcore_unpatch.survey.parallel import no_collection
from mcore_unpatch.survey.places import named_once
from mcore_unpatch.survey.scan import report_of
from mcore_unpatch.survey.search import Progress
from mcore_unpatch.survey.survey import ScanOptions, Survey
from mcore_unpatch.upgrade.fates import URGENCIES, Fate, Step, fate, worst
from mcore_unpatch.upgrade.uses import Uses, joined, outermost, uses_for

_MOST_NAMED = 4  # releases in use, in the first line


@dataclass(slots=True)
class UpgradeReport:
    """What an upgrade means for every use of Megatron, and for every patch that a scan found, the most urgent first."""

    scanned: Report
    old: Model
    new: Model
    fates: list[Fate] = field(default_factory=list)
    uses: Uses = field(default_factory=Uses)
    steps: list[Step] = field(default_factory=list)  # all that were judged; the first is from `old` to `new`
    uncalled: frozenset[str] = frozenset()  # functions that no file of the repository names

    @property
    def from_to(self) -> str:
        """Which Megatrons it goes from, and to which."""
        olds, news = (list(dict.fromkeys(side)) for side in zip(*(self.steps or [(self.old, self.new)]), strict=True))
        number = f" ({len(olds)} releases)" if len(olds) > _MOST_NAMED else ""
        said = f"{olds[0].label} ... {olds[-1].label}{number}" if number else ", ".join(old.label for old in olds)
        return f"From megatron-core {said} to {', '.join(release.label for release in news)}"

    def of(self, urgency: str) -> list[Fate]:
        """The patches of one urgency."""
        return [fate for fate in self.fates if fate.urgency == urgency]

    def shown(self, path: str) -> str:
        """A path of the project as machines are told it: relative to the root of the scan."""
        return relative(Path(self.scanned.top, path), Path(self.scanned.root))

    def to_json(self) -> dict[str, Any]:
        """The report as plain data, version 1."""
        return {
            "version": 1,
            "root": self.scanned.root,
            "from": self.old.label,
            "to": self.new.label,
            "steps": [{"from": old.label, "to": new.label} for old, new in self.steps],
            "files_scanned": self.scanned.files_scanned,
            "counts": {urgency: len(self.of(urgency)) for urgency in URGENCIES},
            "patches": [fate.to_json() for fate in self.fates],
            "uses": list(map(self._use, self.uses.affected)),
            "fits_neither": list(map(self._use, self.uses.already)),
            "read": {"files": self.uses.files, "uses": self.uses.read, "beyond": self.uses.beyond},
            "errors": [{"path": error.path, "message": error.message} for error in self.scanned.errors],
        }

    def _use(self, use: Statement) -> dict[str, Any]:
        """One use as plain data."""
        told = {key: value for key, value in use.to_json().items() if key != "before"} | {"path": self.shown(use.path)}
        scope = use.demand.at.scope.function if use.demand is not None else None
        function = getattr(scope.node, "name", "") if scope is not None else ""
        return {**told, "name": use.name, "function": function, "in_test": is_test(use.path)}


def upgrade(
    paths: list[Path],
    options: ScanOptions,
    old: Model,
    new: Model,
    source: MegatronSource | None = None,
    progress: Progress | None = None,
    also: Sequence[Step] = (),
) -> UpgradeReport:
    """Judge every use and every patch below some paths for the step from one release to another, and for some more."""
    steps = [(old, new), *also]
    scanned, patches, used, uncalled = _read(paths, options, steps, source, progress, fixes=True)
    fates = [worst([fate(finding, case, *step) for step in steps], steps) for finding, case in patches]
    return UpgradeReport(scanned, old, new, _sorted(fates), joined(used, steps), steps, uncalled)


def each_release(
    paths: list[Path], options: ScanOptions, old: Model, releases: Sequence[Model], progress: Progress | None = None
) -> list[UpgradeReport]:
    """A report for each of several releases; the repository is scanned and read once."""
    steps = [(old, new) for new in releases]
    scanned, patches, used, _ = _read(paths, options, steps, None, progress, fixes=False)
    reports = []
    for (_, new), uses in zip(steps, used, strict=True):
        fates = _sorted([fate(finding, case, old, new) for finding, case in patches])
        reports.append(UpgradeReport(scanned, old, new, fates, uses, [(old, new)]))
    return reports


def _sorted(fates: list[Fate]) -> list[Fate]:
    return sorted(fates, key=lambda each: (URGENCIES.index(each.urgency), each.finding.sort_key))


_Patch = tuple[Finding, Case | None]


def _read(
    paths: list[Path],
    options: ScanOptions,
    steps: Sequence[Step],
    source: MegatronSource | None,
    progress: Progress | None,
    fixes: bool,
) -> tuple[Report, list[_Patch], list[Uses], frozenset[str]]:
    """The scan of a repository, its patches, what each step does to its uses, and the functions that nobody names."""
    options = replace(options, megatron=(), stacks=(), base=None, baseline=None, fixes=fixes, source=source)
    options = replace(options, target=parse_version(steps[0][1].label), named_by="the release to move to")
    survey = Survey(paths, options, progress)
    scanned = report_of(survey)
    project = survey.project()
    patches = list(patches_of(scanned, project))
    with no_collection():
        used = uses_for(survey.found.own, project, steps, progress)
    carried = sorted({*survey.whole.python, *survey.whole.patches}.difference(survey.whole.own))
    shapes = {target: shape for target, shape in _shapes(scanned).items() if shape != "patch-file"}  # read by `brought`
    for uses, (old, new) in zip(used, steps, strict=True):
        uses.drop_what_is_brought(carried, survey.files.read, old)
        ours = {use for use in (*uses.affected, *uses.already) if _is_ours(use, old, new, shapes)}
        uses.already = [use for use in uses.already if use not in ours]
        # What an unknown function takes, its replacement may take too.
        ours = {use for use in ours if use.exception != "TypeError" or known.lacking(old, use.name)}
        uses.affected = [use for use in uses.affected if use not in ours]
    known_errors = {error.path for error in scanned.errors}
    errors = (replace(error, path=survey.found.shown(error.path)) for error in used[0].unread)
    scanned.errors = sorted([*scanned.errors, *(error for error in errors if error.path not in known_errors)])
    names = {finding.installed_by for finding, _ in patches if not finding.in_test}
    names |= {outermost(use) for uses in used for use in uses.affected if use.will_raise and not is_test(use.path)}
    return scanned, patches, used, named_once(filter(None, names), survey.everything, project)


def _is_ours(use: Statement, old: Model, new: Model, shapes: dict[str, str]) -> bool:
    """Whether a use comes to what the repository puts there itself: a name that no release has, or what takes a call.

    Of a package that the older wheel lacks it is not known what was there: a patch of that very name is meant.
    """
    if known.lacking(old, use.name):
        return use.exception == "TypeError" and use.name in shapes
    if use.exception in ("ImportError", "AttributeError") and known.ever(use.name):
        return False
    fits = use.demand is not None and is_replaced(use.demand.on(new), new, shapes)
    return fits and use.exception != "ModuleNotFoundError"


def _shapes(scanned: Report) -> dict[str, str]:
    """The shapes of the patches outside tests, by target."""
    apart = {"mock", *NO_PATCHES}
    by_reach = sorted(scanned.findings, key=lambda one: one.shape != "instance-attr")  # of a name the class's goes last
    return {finding.target: finding.shape for finding in by_reach if finding.shape not in apart and not finding.in_test}


def patches_of(scanned: Report, project: Project) -> Iterator[_Patch]:
    """Each patch that a scan found, with its case; patch files and what only a text tells have none."""
    known: dict[str, dict[tuple[int, str], Case]] = {}
    shapes = _shapes(scanned)
    for finding in (*scanned.findings, *scanned.done):  # old code beside its official way runs on older releases
        if finding.shape in NO_PATCHES or finding.rule == UNUSED_IGNORE:
            continue
        if finding.path not in known:
            is_python = finding.shape != "patch-file"
            project.begin()
            known[finding.path] = _cases(project.resolver(scanned.from_top(finding.path)), shapes) if is_python else {}
        yield finding, known[finding.path].get((finding.line, finding.target))


def _cases(resolver: Resolver, shapes: dict[str, str]) -> dict[tuple[int, str], Case]:
    """The patches of one file by line and target."""
    installs = restores.split_restores(detect.collect(resolver), resolver)
    cases = Case.all_of(installs, resolver, shapes)
    return {(getattr(case.install.node, "lineno", 0), case.install.target): case for case in cases}
