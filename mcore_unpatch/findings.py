"""The value a scan produces: one finding per patch, with the lines that belong to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcore_unpatch.paths import from_here, relative
from mcore_unpatch.requirements import Judged


@dataclass(frozen=True, slots=True, order=True)
class Related:
    """A line that belongs to a patch: its backup, flag, restore or toggle."""

    line: int
    role: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One patch of Megatron Core. The fields up to `in_test` are the JSON interface, version 1."""

    rule: str
    path: str
    line: int
    column: int
    end_line: int
    target: str
    shape: str
    seam: str
    confidence: str
    temporary: bool
    fix: str | None
    message: str
    replacement: str | None
    related: tuple[Related, ...] = ()
    in_test: bool = False
    # The source lines of the finding: quoted in text output, compared when lines have moved.
    source: str = field(default="", compare=False)

    def to_json(self) -> dict[str, Any]:
        """The finding as plain data."""
        data: dict[str, Any] = {name: getattr(self, name) for name in JSON_FIELDS}
        data["related"] = [{"line": item.line, "role": item.role} for item in self.related]
        return data

    @property
    def sort_key(self) -> tuple[str, int, int, str]:
        """Order within a report: by file, then by position."""
        return (self.path, self.line, self.column, self.target)


JSON_FIELDS = (
    "rule",
    "path",
    "line",
    "column",
    "end_line",
    "target",
    "shape",
    "seam",
    "confidence",
    "temporary",
    "in_test",
    "fix",
    "message",
    "replacement",
)


@dataclass(frozen=True, slots=True, order=True)
class FileError:
    """A file that could not be analysed, and why."""

    path: str
    message: str


@dataclass(slots=True)
class Report:
    """The result of one scan; paths are relative to `root`, and `top` is the root of the repository around it."""

    root: str
    files_scanned: int = 0
    findings: list[Finding] = field(default_factory=list)
    errors: list[FileError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)
    top: str = ""
    fixes_known: bool = False  # the codemods were asked what they would do
    only_new: bool = False  # known findings were left out: those of a base or of a baseline

    def from_here(self, path: str) -> str:
        """A path for people: relative to where they stand."""
        return from_here(Path(self.root, path))

    def from_top(self, path: str) -> str:
        """A path for services that know the repository: relative to its root."""
        return relative(Path(self.root, path), Path(self.top or self.root))

    def to_json(self) -> dict[str, Any]:
        """The report as plain data, version 1."""
        return {
            "version": 1,
            "root": self.root,
            "files_scanned": self.files_scanned,
            "judged": [one.to_json() for one in self.judged],
            "findings": [finding.to_json() for finding in self.findings],
            "errors": [{"path": error.path, "message": error.message} for error in self.errors],
        }
