"""What a migration did, or would do: the value every report is made from."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from mcore_unpatch.editing.edits import NewContent, Options, Plan, Remark, splice
from mcore_unpatch.editing.placing import PlacedEdit, changes_of, moved_line, unified
from mcore_unpatch.errors import FileError
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.records import asdict, dataclass, field, record, replace
from mcore_unpatch.report import counts
from mcore_unpatch.repository.discover import is_excluded
from mcore_unpatch.repository.paths import from_here, relative
from mcore_unpatch.survey.fixes import identity
from mcore_unpatch.survey.survey import Survey


@record
class Dependency:
    """The dependency of the new code."""

    line: str
    python: str = ""  # what the project says of Python, where it allows an older one than the dependency


def oldest_python(dependency: str) -> int:
    """The minor version: the operator and the tool run on 3.11, and megatron-core does not."""
    return 11 if dependency.endswith("[ops]") else 12


@dataclass(slots=True)
class Outcome:
    """Paths are relative to the top of the work tree; people see them from where they stand, JSON from the root."""

    survey: Survey
    plan: Plan
    options: Options
    rewrites: list[NewContent]
    remaining: list[Finding]
    dependency: Dependency | None = None
    written: bool = False
    commits: list[str] = field(default_factory=list)  # the titles of those that were made
    offers: list[str] = field(default_factory=list)  # what can be had where nothing is wrong, and by which option
    fixable: dict[Finding, Finding] = field(default_factory=dict)  # the findings as `scan` has them, with their `fix`

    def shown(self, path: str) -> str:
        """A path for people: relative to where they stand."""
        return from_here(self.survey.found.top / path)

    @property
    def diff_base(self) -> Path:
        """Where the diff can be applied: here, or the top where it also speaks of files that are not below."""
        here = Path.cwd()
        top = self.survey.found.top
        return here if all((top / item.path).is_relative_to(here) for item in self.rewrites) else top

    @property
    def errors(self) -> list[FileError]:
        """Files that could not be looked into."""
        discovery, options = self.survey.found, self.survey.options
        base = options.exclude_base or discovery.root
        told = (one for one in self.plan.errors if not is_excluded(discovery.top / one.path, base, options.exclude))
        return sorted({*self.survey.errors, *told})

    @property
    def changes(self) -> list[PlacedEdit]:
        """Every edit, placed in the bytes as they were: the files have others once the migration is written."""
        return changes_of(self.plan, self._as_it_was)

    def _as_it_was(self, path: str) -> bytes:
        """The bytes of a file before the migration, also once that is written."""
        written = (item.before for item in self.rewrites if item.path == path)
        before = next(written, None)
        return self.survey.files.read(path) if before is None else before

    @property
    def remarks(self) -> list[Remark]:
        """What people should know of the files that were named, by place."""
        named = {*self.survey.found.python, *self.survey.found.patches}
        remarks = [remark for remark in self.plan.remarks if remark.path in named]
        return sorted(remarks, key=lambda remark: (remark.path, remark.line, remark.rule, remark.text))

    @property
    def left(self) -> list[Finding]:
        """The remaining findings as `scan` has them: where they stood before, and what breaks after the migration."""
        left = []
        for before, now in zip(self._left_before, self.remaining, strict=True):
            known = self.fixable.get(before, before)
            known = before if known.fix == "safe" else known  # one that was not made after all is none
            left.append(replace(known, effect=now.effect, breaks=now.breaks, fails=now.fails))
        return left

    @property
    def done(self) -> list[Finding]:
        """The findings that are gone."""
        gone = Counter(self.survey.findings) - Counter(self._left_before)
        return [self.fixable.get(finding, finding) for finding in gone.elements()]

    @property
    def _left_before(self) -> list[Finding]:
        before = defaultdict(list)
        gone = set(self.plan.removes)
        for finding in sorted(self.survey.findings, key=lambda finding: (finding in gone, finding.sort_key)):
            before[identity(finding)].append(finding)
        return [before[key].pop(0) if before[key := identity(finding)] else finding for finding in self.remaining]

    @property
    def answered(self) -> list[Finding]:
        """The findings that the edits do something about."""
        edits = {(edit.path, edit.finding_line, edit.rule) for edit in self.plan.edits}
        gone = set(self.plan.removes)
        return [one for one in self.survey.findings if one in gone or (one.path, one.line, one.rule) in edits]

    def line(self, path: str, line: int) -> int:
        """Where a line of the old file stands now: elsewhere once the migration is written."""
        edits = [edit for edit in self.plan.edits if edit.path == path]
        if not self.written or not edits:
            return line
        return moved_line(self._as_it_was(path), edits, line)

    @property
    def size(self) -> tuple[int, int]:
        """The lines that come and go."""
        lines = [line for line in self.diff().split(b"\n") if not line.startswith((b"+++ ", b"--- "))]
        return sum(line.startswith(b"+") for line in lines), sum(line.startswith(b"-") for line in lines)

    def diff(self) -> bytes:
        """The unified diff of all files."""
        top, base = self.survey.found.top, self.diff_base
        files = ((relative(top / item.path, base), item) for item in self.rewrites)
        return b"".join(unified(path, item.before, item.after, item.gone) for path, item in files)

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain data, version 1."""
        return {
            "version": 1,
            "root": str(self.survey.found.root),
            "files_scanned": len(self.survey.found.python) + len(self.survey.found.patches),
            "judged": [judged.to_json() for judged in self.survey.judged],
            "written": self.written,
            "files": [self._file(item) for item in self.rewrites],
            "edits": [self._edit(change) for change in self.changes],
            "remarks": [{**asdict(remark), "path": self._from_root(remark.path)} for remark in self.remarks],
            "remaining": [{**finding.to_json(), "path": self._from_root(finding.path)} for finding in self.remaining],
            "counts": {"done": counts.as_data(self.done), "left": counts.as_data(self.left)},
            "offers": self.offers,
            "recipes": list(self.plan.recipes),
            "requirement": self.plan.requirement,
            "dependency": self.dependency and asdict(self.dependency),
            "errors": [{"path": self._from_root(error.path), "message": error.message} for error in self.errors],
        }

    def _from_root(self, path: str) -> str:
        return self.survey.found.shown(path)

    def _file(self, item: NewContent) -> dict[str, Any]:
        rules = {finding.rule for finding in self.answered if finding.path == item.path}
        path = self._from_root(item.path)
        return {"path": path, "rules": sorted(rules), "diff": _text(unified(path, item.before, item.after, item.gone))}

    def _edit(self, change: PlacedEdit) -> dict[str, Any]:
        edit = change.edit
        data = self._as_it_was(edit.path)
        path = self._from_root(edit.path)
        return {
            "path": path,
            "rule": edit.rule,
            "level": edit.level,
            "gain": edit.gain,
            "title": edit.title,
            "notes": list(edit.notes),
            "before": {**asdict(change.before), "text": _text(data[edit.start : edit.end])},
            "after": {**asdict(change.after), "text": _text(edit.replacement)},
            "diff": _text(unified(path, data, splice(data, [edit]), edit.deletes)),
        }


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
