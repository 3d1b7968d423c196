"""The repository a migration works on: its files, what the scanner says of them, and of them with new contents."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mcore_unpatch.codemods.edits import Repository
from mcore_unpatch.discover import Discovery, discover, others, whole_of
from mcore_unpatch.findings import FileError, Finding
from mcore_unpatch.megatron.versions import Version
from mcore_unpatch.requirements import Judged, Requirements
from mcore_unpatch.scan import Options as ScanOptions, findings_of, scan
from mcore_unpatch.scanner.parallel import WorkTree

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Survey:
    """Paths in findings and errors are relative to `found.top`; `version` is the release to migrate for.

    The repository is read as a whole. `found` are the files that were named: these alone may be edited, and findings
    and errors are theirs; `elsewhere` are the findings in other files.
    """

    found: Discovery
    options: ScanOptions
    pins: Requirements
    version: Version
    repository: Repository
    findings: tuple[Finding, ...]
    elsewhere: tuple[Finding, ...]
    errors: tuple[FileError, ...]
    notes: tuple[str, ...]
    judged: tuple[Judged, ...]

    def with_contents(self, contents: Mapping[str, bytes]) -> Repository:
        """The repository with other bytes in some files; nothing is read again."""
        old = self.repository
        return Repository(old.paths, old.exists, Overlay(old.data, contents).read, old.editable)

    def without(self, paths: Iterable[str]) -> Survey:
        """The same, with some files that may no longer be edited."""
        old = self.repository
        return replace(self, repository=Repository(old.paths, old.exists, old.read, old.editable.difference(paths)))

    def rescan(self, contents: Mapping[str, bytes]) -> tuple[list[Finding], list[FileError]]:
        """What the scanner would say if these were the contents."""
        overlay = Overlay(WorkTree(self.found.top).read, contents)
        return findings_of(self.found, self.pins, self.options, read=overlay.read)


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
    report = scan(paths, options, progress)
    # What is excluded is not reported or edited, but it is part of the repository, as other files that were not named.
    whole = whole_of(found, paths, options.exclude)
    tree, pins = WorkTree(found.top), Requirements(found.top, options.target)

    def from_top(path: str) -> str:
        return Path(os.path.relpath(found.root / path, found.top)).as_posix()

    findings = tuple(replace(finding, path=from_top(finding.path)) for finding in report.findings)
    return Survey(
        found,
        options,
        pins,
        pins.target_for(finding.path for finding in findings),
        Repository(whole.own, tree.exists, tree.read, found.own),
        findings,
        tuple(findings_of(others(whole, found), pins, options)[0]),
        tuple(replace(error, path=from_top(error.path)) for error in report.errors),
        tuple(report.notes),
        tuple(report.judged),
    )
