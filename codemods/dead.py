"""Branches of patches that never run on the releases of a project: they go with their guard.

This is no class of the catalogue: it answers no rule but what may be true of any finding, and for what is dead no
codemod is asked.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from mcore_unpatch.codemods import standing
from mcore_unpatch.codemods.changes import Asked, Change, Keep, Reason, Taken
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.syntax import is_pure
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.edits import Options
from mcore_unpatch.editing.refusals import Left, Refusal
from mcore_unpatch.editing.source import Source, lines_of
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.megatron.versions import Version, parse_version, reached, show

_TITLE = "deletes the branch of a patch that never runs on Megatron Core {} or later"


@dataclass(frozen=True, eq=False)
class _DeadBranch:
    """A branch of an `if`, and what becomes of this."""

    guard: ast.If
    gone: list[ast.stmt]
    changes: list[Change]

    @property
    def lines(self) -> set[int]:
        """The lines that go."""
        return {line for node in self.gone for line in lines_of(node)}


def delete_dead(bench: Workbench, findings: Sequence[Finding], options: Options, taken: Taken) -> set[Finding]:
    """Delete the branches of patches that run on no release of their project; all that never run."""
    dead = [finding for finding in findings if _never_runs(finding, options.judged(finding.path))]
    living = {place for finding in findings if finding not in dead for place in _restores(finding)}
    made: set[tuple[str, int]] = set()  # several patches may stand in one branch
    for finding in dead:
        path, versions = finding.path, options.judged(finding.path)
        source = bench.repository.readable(path) if path in bench.repository.editable else None
        branch = _branch(source, finding, versions) if source is not None else None
        left = options.guessed(path)
        if left is None and (source is None or branch is None):
            left = Left()
        elif left is None and source is not None and branch is not None:
            # What puts the original back goes too, alone it would be a patch itself; or another patch needs it.
            alone = [place for place in _restores(finding) if place not in living and place[1] not in branch.lines]
            left = Left() if alone else standing.missing_import(source, branch.guard, versions)
            if left is None and (path, branch.gone[0].lineno) not in made:
                title = _TITLE.format(show(min(versions)))
                reason = Reason(finding.rule, "exact", title, finding_line=finding.line)
                asked = [Asked(source, change, reason) for change in branch.changes]
                left = None if taken.take(asked) else Left(Refusal.OVERLAP)
                bench.asked += asked if left is None else []
                made |= {(path, branch.gone[0].lineno)} if left is None else set()
        if left is None:
            bench.removes.append(finding)
        else:
            bench.left[finding] = left
    return set(dead)


def _restores(finding: Finding) -> list[tuple[str, int]]:
    """Where the original is put back."""
    return [(finding.path, related.line) for related in finding.related if related.role == "restore"]


def _never_runs(finding: Finding, versions: Sequence[Version]) -> bool:
    """Whether a patch is installed on no release from the oldest on.

    What lives on later releases alone is not dead: it is there for the next upgrade.
    """
    alive = [parse_version(release) for release in finding.live.releases]
    never = not finding.live.newer and bool(alive) and max(alive) < versions[0]
    return never and finding.path.endswith(".py")


def _branch(source: Source, finding: Finding, versions: Sequence[Version]) -> _DeadBranch | None:
    """The outermost branch that none of the releases takes, where it can go by itself."""
    needed = {release for release in reached(versions[-1]) if parse_version(release) >= versions[0]}
    fitting = [one for one in finding.live.guards if needed <= set(one.rules_out) and not one.path]
    for guard in sorted(fitting, key=lambda one: one.line):
        for node in source.every(ast.If):
            if (node.lineno, node.end_lineno) != (guard.line, guard.end_line) or not is_pure(node.test):
                continue
            if source.line(node.lineno).lstrip().startswith("elif") or guard.branch not in ("if", "else"):
                return None
            gone, kept = (node.body, node.orelse) if guard.branch == "if" else (node.orelse, node.body)
            if not kept and len(source.suite(node)) > 1:
                return _DeadBranch(node, gone, [*remove(source, [node])])
            chained = bool(kept) and source.line(kept[0].lineno).lstrip().startswith("elif")
            return _DeadBranch(node, gone, [Keep(node, kept)]) if kept and not chained else None
    return None
