"""One scan from the paths a user names to the report: discover, analyse, suppress, select, compare."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mcore_unpatch import suppress, tree, verdicts
from mcore_unpatch.codemods import registry
from mcore_unpatch.discover import Discovery, discover, others, whole_of
from mcore_unpatch.findings import FileError, Finding, Report
from mcore_unpatch.megatron.versions import Version
from mcore_unpatch.migrate import traces
from mcore_unpatch.requirements import Requirements
from mcore_unpatch.rules import Selection
from mcore_unpatch.scanner.conditions import call_sites
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.scanner.parallel import Part, Task, WorkTree, analyse_parallel
from mcore_unpatch.scanner.shapes import patch_files
from mcore_unpatch.scanner.sources.files import Reader
from mcore_unpatch.scanner.sources.parsing import Unreadable

if TYPE_CHECKING:
    from mcore_unpatch.upgrade.releases import Release

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class PinnedOn:
    """A lock file, and the release it is held to."""

    file: Path
    release: Release
    required: bool = False  # a patch without a pin is a finding of its own


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line and the configuration ask for."""

    selection: Selection = field(default_factory=Selection)
    exclude: tuple[str, ...] = ()
    exclude_base: Path | None = None
    target: Version | None = None
    jobs: int = 0
    base: str | None = None
    baseline: Path | None = None
    possible: bool = False  # also what is told by the name of a method alone
    fixes: bool = False  # say of each finding whether `migrate` would take it away
    lock: PinnedOn | None = None  # accept what is pinned, and hold the pins to a release


def scan(paths: list[Path], options: Options, progress: Progress | None = None) -> Report:
    """Scan files and folders; raises `UsageError` for what the user has to change."""
    found = discover(paths or [Path()], options.exclude, options.exclude_base)
    pins = Requirements(found.top, options.target)
    report = Report(str(found.root), len(found.python) + len(found.patches), notes=list(found.notes))
    report.top = str(found.top)
    report.only_new = options.base is not None or options.baseline is not None
    if traces.may_exist(found.top):
        from mcore_unpatch.migrate.recovery import describe_interrupted

        report.notes += [line for line in [describe_interrupted(found.top)] if line]
    look = _findings if options.base is None else _new_findings
    everything = any(path.resolve() == found.top for path in paths or [Path()])
    kept, errors = look(found, pins, options, progress, everything)
    report.fixes_known = options.fixes
    if options.fixes and any(map(_may_be_fixed, kept)):
        from mcore_unpatch import fixes

        whole = whole_of(found, paths, options.exclude)
        elsewhere, _ = findings_of(others(whole, found), pins, options)
        kept = fixes.mark(kept, elsewhere, found, whole, pins, options.selection)
    kept = _judged(kept, pins)
    report.errors = sorted(replace(error, path=found.shown(error.path)) for error in errors)
    report.findings = sorted((replace(f, path=found.shown(f.path)) for f in kept), key=lambda f: f.sort_key)
    report.judged = sorted({pins.of(finding.path) for finding in kept} or {pins.of("")})
    if options.baseline is not None:
        from mcore_unpatch import baseline

        scanned = {found.shown(path) for path in (*found.python, *found.patches)}
        counts = baseline.load(options.baseline)
        report.findings, surplus = baseline.subtract(report.findings, counts, options.baseline, found.root, scanned)
        report.notes += surplus
    return report


def findings_of(
    found: Discovery, pins: Requirements, options: Options, progress: Progress | None = None, read: Reader | None = None
) -> tuple[list[Finding], list[FileError]]:
    """Everything of the selected rules, in Python and patch files; paths are relative to the top.

    `read` gives other bytes than those on disk, to ask what a scan would find in them.
    """
    files = WorkTree(found.top)
    read = read or files.read
    task = Task(read, files.exists, pins.versions, options.selection.wants_mocks, words=registry.words())
    own = found.own
    whole = Part()
    for part in analyse_parallel(own, files, task, options.jobs or os.cpu_count() or 1):
        whole.add(part)
        if progress:
            progress(whole.files, len(own))
    versions = {one.path: pins.versions(one.path) for one in whole.findings}
    project = Project(task.exists, task.read)
    whole.findings = call_sites.narrowed(whole.findings, own, whole.testing, project, versions)
    registry.complete(whole, task)
    for path in found.patches:
        try:
            if finding := patch_files.finding_in(path, read(path)):
                whole.findings.append(finding)
        except FileNotFoundError:
            continue  # listed by git, deleted on disk
        except Unreadable as error:
            whole.errors.append(FileError(path, str(error)))
        except OSError as error:
            whole.errors.append(FileError(path, f"cannot be read: {error.strerror or error}"))
    settled = suppress.settle(whole.findings, whole.marked, read)
    chosen = [
        finding
        for finding in settled
        if finding.rule in options.selection and (options.possible or finding.confidence != "possible")
    ]
    return sorted(_judged(chosen, pins), key=lambda finding: finding.sort_key), whole.errors + found.errors


def _may_be_fixed(finding: Finding) -> bool:
    """Whether a codemod may know what to do: else none is loaded."""
    never_runs = bool(finding.target) and finding.verdict == "delete"
    return finding.can_move or never_runs or finding.rule in registry.answered()


def _judged(findings: list[Finding], pins: Requirements) -> list[Finding]:
    return verdicts.settled(findings, {one.path: pins.versions(one.path) for one in findings})


def _findings(
    found: Discovery, pins: Requirements, options: Options, progress: Progress | None, whole: bool
) -> tuple[list[Finding], list[FileError]]:
    """The findings that no lock speaks for; `whole`: the user asked for all files there are."""
    findings, errors = findings_of(found, pins, options, progress)
    return _without_pinned(findings, options.lock, whole) if options.lock else findings, errors


def _without_pinned(findings: list[Finding], lock: PinnedOn, whole: bool) -> list[Finding]:
    from mcore_unpatch import pinned, pins

    known = pins.load(lock.file)
    text = tree.read(lock.file).decode()
    return pinned.settle(findings, known, lock.file.name, text, lock.release, whole=whole, required=lock.required)


def _new_findings(
    asked: Discovery, pins: Requirements, options: Options, progress: Progress | None, whole: bool
) -> tuple[list[Finding], list[FileError]]:
    """What is new in the files asked for. Both sides are seen in full, so that a copy is not taken for a move."""
    from mcore_unpatch import compare

    assert options.base is not None
    revision = compare.merge_base(asked.top, options.base)
    base = options.exclude_base or asked.root
    everything = discover([asked.top], options.exclude, base)
    everything.python = sorted({*everything.python, *asked.python})
    everything.patches = sorted({*everything.patches, *asked.patches})
    everything.errors = asked.errors
    now, errors = _findings(everything, pins, options, progress, whole)
    before = compare.findings_at(asked.top, revision, pins, options.selection.wants_mocks, options.exclude, base)
    new = compare.new_findings(now, before, compare.renames(asked.top, revision))
    elsewhere = {*everything.python, *everything.patches}.difference(asked.python, asked.patches)
    return [one for one in new if one.path not in elsewhere], [one for one in errors if one.path not in elsewhere]
