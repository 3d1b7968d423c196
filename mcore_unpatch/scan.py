"""One scan from the paths a user names to the report: discover, analyse, suppress, select, compare."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from mcore_unpatch import suppress
from mcore_unpatch.discover import Discovery, discover
from mcore_unpatch.findings import FileError, Finding, Report
from mcore_unpatch.megatron.versions import NEWEST, Version, show
from mcore_unpatch.migrate import traces
from mcore_unpatch.pins import pinned_version
from mcore_unpatch.rules import Selection
from mcore_unpatch.scanner import patch_files
from mcore_unpatch.scanner.engine import Part, Task, WorkTree, analyse_parallel

Progress = Callable[[int, int], None]


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
    fixes: bool = False  # say of each finding whether `migrate` would take it away


def scan(paths: list[Path], options: Options, progress: Progress | None = None) -> Report:
    """Scan files and folders; raises `UsageError` for what the user has to change."""
    found = discover(paths or [Path()], options.exclude, options.exclude_base)
    version, origin = _version(found, options)
    report = Report(str(found.root), len(found.python) + len(found.patches), notes=list(found.notes))
    report.only_new = options.base is not None or options.baseline is not None
    if traces.may_exist(found.top):
        from mcore_unpatch.migrate.recovery import describe_interrupted

        report.notes += [line for line in [describe_interrupted(found.top)] if line]
    if origin:
        report.notes.append(f"judged for megatron-core {show(version)}, {origin}")
    part = _analyse(found, version, options, progress)
    kept = suppress.settle(part.findings, part.marked, WorkTree(found.top).read)
    if options.base is not None:
        kept = _only_new(kept, found, version, options)
    if options.fixes:
        from mcore_unpatch import fixes

        tree = WorkTree(found.top)
        kept = fixes.mark(kept, tree.read, tree.exists, version)
    report.errors = sorted(replace(error, path=found.shown(error.path)) for error in part.errors)
    report.findings = sorted(
        (replace(f, path=found.shown(f.path)) for f in kept if f.rule in options.selection), key=lambda f: f.sort_key
    )
    if options.baseline is not None:
        from mcore_unpatch import baseline

        scanned = {found.shown(path) for path in (*found.python, *found.patches)}
        counts = baseline.load(options.baseline)
        report.findings, surplus = baseline.subtract(report.findings, counts, options.baseline, found.root, scanned)
        report.notes += [f"the baseline is too generous: {line}; update it with --write-baseline" for line in surplus]
    return report


def _version(found: Discovery, options: Options) -> tuple[Version, str]:
    if options.target is not None:
        return options.target, ""
    pin = pinned_version(found.top)
    return (pin[0], f"as pinned in {pin[1]}") if pin else (NEWEST, "")


def _analyse(found: Discovery, version: Version, options: Options, progress: Progress | None) -> Part:
    tree = WorkTree(found.top)
    task = Task(tree.read, tree.exists, version, options.selection.wants_mocks)
    own = [path for path in found.python if not _is_megatron_itself(found.top, path)]
    whole = Part()
    for part in analyse_parallel(own, tree, task, options.jobs or os.cpu_count() or 1):
        whole.files += part.files
        whole.findings += part.findings
        whole.errors += part.errors
        whole.marked += part.marked
        if progress:
            progress(whole.files, len(own))
    for path in found.patches:
        try:
            if finding := patch_files.finding_in(path, tree.read(path)):
                whole.findings.append(finding)
        except FileNotFoundError:
            continue  # listed by git, deleted on disk
        except OSError as error:
            whole.errors.append(FileError(path, f"cannot be read: {error.strerror or error}"))
    return whole


def _is_megatron_itself(top: Path, path: str) -> bool:
    """Megatron Core's own source, vendored or installed, is not a patch of itself."""
    full = f"{top.as_posix()}/{path}"
    return (
        "/megatron/core/" in full
        and (Path(full[: full.index("/megatron/core/")]) / "megatron/core/package_info.py").exists()
    )


def _only_new(findings: list[Finding], found: Discovery, version: Version, options: Options) -> list[Finding]:
    from mcore_unpatch import compare

    assert options.base is not None
    revision = compare.merge_base(found.top, options.base)
    before = compare.findings_at(found.top, revision, version, options.selection.wants_mocks)
    return compare.new_findings(findings, before, compare.renames(found.top, revision))
