"""The repository a migration works on: its files, what the scanner says of them, and of them with new contents."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mcore_unpatch import suppress
from mcore_unpatch.codemods.edits import Repository
from mcore_unpatch.discover import Discovery, discover
from mcore_unpatch.findings import FileError, Finding
from mcore_unpatch.megatron.versions import NEWEST, Version
from mcore_unpatch.pins import pinned_version
from mcore_unpatch.scan import Options as ScanOptions
from mcore_unpatch.scan import scan
from mcore_unpatch.scanner.engine import Task, WorkTree, analyse_parallel

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Survey:
    """Paths in findings and errors are relative to `found.top`."""

    found: Discovery
    options: ScanOptions
    version: Version
    repository: Repository
    findings: tuple[Finding, ...]
    errors: tuple[FileError, ...]
    notes: tuple[str, ...]

    def with_contents(self, contents: Mapping[str, bytes]) -> Repository:
        """The repository with other bytes in some files; nothing is read again."""
        return Repository(self.repository.paths, self.repository.exists, Overlay(self.repository.data, contents).read)

    def rescan(self, contents: Mapping[str, bytes]) -> tuple[list[Finding], list[FileError]]:
        """What the scanner would say if these were the contents."""
        tree = WorkTree(self.found.top)
        overlay = Overlay(tree.read, contents)
        task = Task(overlay.read, tree.exists, self.version, self.options.selection.wants_mocks)
        findings: list[Finding] = []
        errors: list[FileError] = []
        jobs = self.options.jobs or os.cpu_count() or 1
        for part in analyse_parallel(list(self.repository.paths), tree, task, jobs):
            findings += part.findings
            errors += part.errors
        ignores = {path: suppress.comments(overlay.read(path)) for path in {finding.path for finding in findings}}
        kept = suppress.apply(findings, ignores)
        return [finding for finding in kept if finding.rule in self.options.selection], errors


@dataclass(frozen=True, slots=True)
class Overlay:
    """Reads some files from memory."""

    below: Callable[[str], bytes]
    contents: Mapping[str, bytes]

    def read(self, path: str) -> bytes:
        """The bytes of a file."""
        return self.contents[path] if path in self.contents else self.below(path)


def survey(paths: list[Path], options: ScanOptions, progress: Progress | None = None) -> Survey:
    """Look at a repository; raises `UsageError` as `scan` does."""
    options = replace(options, base=None, baseline=None)
    found = discover(paths or [Path()], options.exclude, options.exclude_base)
    pin = pinned_version(found.top)
    version = options.target or (pin[0] if pin else NEWEST)
    report = scan(paths, replace(options, target=version), progress)
    tree = WorkTree(found.top)
    # Megatron Core's own source, where a repository carries it along, is not ours to change.
    own = [path for path in found.python if "/megatron/core/" not in f"/{path}"]

    def from_top(path: str) -> str:
        return Path(os.path.relpath(found.root / path, found.top)).as_posix()

    return Survey(
        found,
        options,
        version,
        Repository(own, tree.exists, tree.read),
        tuple(replace(finding, path=from_top(finding.path)) for finding in report.findings),
        tuple(replace(error, path=from_top(error.path)) for error in report.errors),
        tuple(report.notes),
    )
