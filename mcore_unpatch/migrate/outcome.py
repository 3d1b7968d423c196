"""What a migration did, or would do: the value every report is made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mcore_unpatch.editing.edits import NewContent, Options, Plan, splice
from mcore_unpatch.editing.placing import PlacedEdit, changes_of, unified
from mcore_unpatch.errors import FileError
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.records import asdict, dataclass, field
from mcore_unpatch.report import counts, data
from mcore_unpatch.repository.discover import is_excluded
from mcore_unpatch.repository.paths import from_here, relative
from mcore_unpatch.survey.survey import Survey


@dataclass(slots=True)
class Outcome:
    """Paths are relative to the top of the work tree; people see them from where they stand, JSON from the root."""

    survey: Survey
    plan: Plan
    options: Options
    rewrites: list[NewContent]
    findings: list[Finding]  # as `scan` has them, with their `fix` where that was asked for
    written: bool = False
    commits: list[str] = field(default_factory=list)  # the titles of those that were made
    offers: list[str] = field(default_factory=list)  # what can be had where nothing is wrong, and by which option

    def shown(self, path: str) -> str:
        """A path for people: relative to where they stand."""
        return from_here(self.survey.found.top / path)

    @property
    def diff_base(self) -> Path:
        """Where the diff can be applied: here, or the top where it also speaks of files that are not below."""
        here, top = Path.cwd(), self.survey.found.top
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
        return [*changes_of(self.plan, self._as_it_was)]

    def _as_it_was(self, path: str) -> bytes:
        """The bytes of a file before the migration, also once that is written."""
        before = {item.path: item.before for item in self.rewrites}
        return before[path] if path in before else self.survey.files.read(path)

    @property
    def left(self) -> list[Finding]:
        """The findings that stay."""
        gone = {*self.plan.removes}
        return [finding for finding in self.findings if finding not in gone]

    @property
    def done(self) -> list[Finding]:
        """The findings that are gone."""
        gone = {*self.plan.removes}
        return [finding for finding in self.findings if finding in gone]

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
        shown = self.survey.found.shown
        return {
            "version": 1,
            "root": str(self.survey.found.root),
            "files_scanned": len(self.survey.found.python) + len(self.survey.found.patches),
            "judged": [judged.to_json() for judged in self.survey.judged],
            "written": self.written,
            "files": [self._file(item) for item in self.rewrites],
            "edits": [self._edit(change) for change in self.changes],
            "remarks": [
                {"path": shown(one.path), "line": one.line, "rule": one.rule, "kind": str(why.kind), "text": str(why)}
                for one in self.left
                if (why := self.plan.left.get(one)) is not None
            ],
            "remaining": [{**data.of(finding), "path": shown(finding.path)} for finding in self.left],
            "counts": {"done": counts.as_data(self.done), "left": counts.as_data(self.left)},
            "offers": self.offers,
            "recipes": list(self.plan.recipes),
            "requirement": self.plan.requirement,
            "dependency": self.plan.dependency and {"line": self.plan.dependency},
            "errors": [{"path": shown(error.path), "message": error.message} for error in self.errors],
        }

    def _file(self, item: NewContent) -> dict[str, Any]:
        rules = {edit.rule for edit in self.plan.edits if edit.path == item.path}
        path = self.survey.found.shown(item.path)
        return {"path": path, "rules": sorted(rules), "diff": _text(unified(path, item.before, item.after, item.gone))}

    def _edit(self, change: PlacedEdit) -> dict[str, Any]:
        edit = change.edit
        before = self._as_it_was(edit.path)
        path = self.survey.found.shown(edit.path)
        return {
            "path": path,
            "rule": edit.rule,
            "level": edit.level,
            "gain": edit.gain,
            "title": edit.title,
            "notes": list(edit.notes),
            "before": {**asdict(change.before), "text": _text(before[edit.start : edit.end])},
            "after": {**asdict(change.after), "text": _text(edit.replacement)},
            "diff": _text(unified(path, before, splice(before, [edit]), edit.deletes)),
        }


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
