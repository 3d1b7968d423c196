"""Plans over files held in memory: what the codemods make of them, twice."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

from mcore_unpatch.codemods.planner import plan
from mcore_unpatch.codemods.testing import findings as found
from mcore_unpatch.editing.edits import Options, Plan, Repository, Unsound, splice
from mcore_unpatch.findings.finding import Finding

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Result:
    """The files after a migration, the plan that made them, and the findings before and after."""

    files: dict[str, bytes]
    plan: Plan
    before: list[Finding]
    after: list[Finding]
    options: Options

    @property
    def changed(self) -> set[str]:
        """The files that some edit changed."""
        return {edit.path for edit in self.plan.edits}

    def remarks(self, kind: str) -> list[tuple[str, int]]:
        """Where remarks of a kind stand."""
        return [(remark.path, remark.line) for remark in self.plan.remarks if remark.kind == kind]


def planned(files: Files, options: Options, editable: Collection[str] | None = None) -> tuple[Plan, list[Finding]]:
    """The plan for some files, and their findings; all may be edited unless some are named. The same is made once."""
    allowed = frozenset(files if editable is None else editable)
    return _planned(_Contents(files), options, allowed)


class _Contents(dict[str, bytes]):
    """Files that are known by what is in them."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


@lru_cache(maxsize=32)
def _planned(files: _Contents, options: Options, allowed: frozenset[str]) -> tuple[Plan, list[Finding]]:
    present = {*files, *(folder.as_posix() for path in files for folder in PurePosixPath(path).parents)}
    exists, read = present.__contains__, files.__getitem__
    findings = found(files, options)
    editable = set(allowed)
    while True:
        try:
            return plan(Repository(sorted(files), exists, read, editable), findings, options), findings
        except Unsound as problem:  # as a migration does: that file stays as it is
            editable -= problem.reasons.keys()


def after(files: Files, plan: Plan) -> dict[str, bytes]:
    """The files as a plan leaves them."""
    new = dict(files)
    for path in {edit.path for edit in plan.edits}:
        new[path] = splice(files[path], [edit for edit in plan.edits if edit.path == path])
        ast.parse(new[path])
    return new


def migrate(files: Files, options: Options | None = None, editable: Collection[str] | None = None) -> Result:
    """Migrate; every new file parses, what was promised to go is gone, and a second run has nothing to do."""
    options = options or Options()
    first, before = planned(files, options, editable)
    assert editable is None or {edit.path for edit in first.edits} <= {*editable}
    new = after(files, first)
    second, left = planned(new, options, editable)
    assert not second.edits, f"a second run changes {second.edits[0]}"
    for finding in first.removes:
        same = [[(one.path, one.rule, one.target) for one in some] for some in (before, left)]
        was, is_now = (some.count((finding.path, finding.rule, finding.target)) for some in same)
        assert is_now < was
    return Result(new, first, before, left, options)
