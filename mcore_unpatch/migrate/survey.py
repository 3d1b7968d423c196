"""The repository a migration works on: its files, what the scanner says of them, and of them with new contents."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mcore_unpatch.codemods.edits import Repository
from mcore_unpatch.discover import Discovery, discover
from mcore_unpatch.findings import FileError, Finding
from mcore_unpatch.megatron.versions import Version
from mcore_unpatch.requirements import Judged, Pins
from mcore_unpatch.scan import Options as ScanOptions
from mcore_unpatch.scan import findings_of, is_megatron_itself, scan
from mcore_unpatch.scanner.engine import WorkTree

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Survey:
    """Paths in findings and errors are relative to `found.top`; `version` is the release to migrate for."""

    found: Discovery
    options: ScanOptions
    pins: Pins
    version: Version
    repository: Repository
    findings: tuple[Finding, ...]
    errors: tuple[FileError, ...]
    notes: tuple[str, ...]
    judged: tuple[Judged, ...]

    def with_contents(self, contents: Mapping[str, bytes]) -> Repository:
        """The repository with other bytes in some files; nothing is read again."""
        return Repository(self.repository.paths, self.repository.exists, Overlay(self.repository.data, contents).read)

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
    tree = WorkTree(found.top)
    # Megatron Core's own source, where a repository carries it along, is not ours to change.
    own = [path for path in found.python if not is_megatron_itself(found.top, path)]

    def from_top(path: str) -> str:
        return Path(os.path.relpath(found.root / path, found.top)).as_posix()

    pins = Pins(found.top, options.target)
    findings = tuple(replace(finding, path=from_top(finding.path)) for finding in report.findings)
    return Survey(
        found,
        options,
        pins,
        pins.target_for(finding.path for finding in findings),
        Repository(own, tree.exists, tree.read),
        findings,
        tuple(replace(error, path=from_top(error.path)) for error in report.errors),
        tuple(report.notes),
        tuple(report.judged),
    )
