"""What `upgrade --write` writes: under the rules of `migrate`, all files or none, with a journal that `undo` reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mcore_unpatch.editing.edits import Edit, splice
from mcore_unpatch.migrate.journal import NewContent
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.scanner.sources.parsing import why_not
from mcore_unpatch.scanner.sources.work_tree import Overlay, WorkTree
from mcore_unpatch.upgrade.mend import Mended
from mcore_unpatch.upgrade.run import UpgradeReport
from mcore_unpatch.upgrade.uses import uses_of


def write(
    report: UpgradeReport, mended: Sequence[Mended], merges: Sequence[Edit], conflicts: bool, allow_dirty: bool
) -> list[str]:
    """Write the edits that hold, and say which files were changed."""
    from mcore_unpatch.migrate import transaction, vcs
    from mcore_unpatch.migrate.lock import exclusive
    from mcore_unpatch.migrate.recovery import recover
    from mcore_unpatch.migrate.state import locate

    top = Path(report.scanned.top)
    state = locate(top)
    state.refuse_inside_work_tree()
    with exclusive(state.lock_file):
        recover(top)
        changed = contents(report, mended, merges, conflicts)
        if changed:
            vcs.refuse_unsafe(
                Path(report.scanned.root), top, [item.path for item in changed], allow_dirty, allow_no_vcs=False
            )
            transaction.write(state, changed)
    return [item.path for item in changed]


def contents(
    report: UpgradeReport, mended: Sequence[Mended], merges: Sequence[Edit], conflicts: bool
) -> list[NewContent]:
    """The files as they become: each compiles, unless it is to hold conflicts, and raises less than before."""
    edits = [*merges, *(edit for one in mended for edit in one.edits)]
    files = WorkTree(Path(report.scanned.top))
    found = []
    for path in sorted({edit.path for edit in edits}):
        before = files.read(path)
        after = splice(before, _apart([edit for edit in edits if edit.path == path]))
        broken = why_not(after, path) is not None
        has_conflicts = conflicts and any(edit.path == path and b"<<<<<<< " in edit.replacement for edit in merges)
        if after == before or (broken and not has_conflicts):
            continue
        if broken or _raises_less(report, mended, path, after, files):
            found.append(NewContent(path, before, after))
    return found


def _apart(edits: list[Edit]) -> list[Edit]:
    """Of edits that overlap the first: a merge of a whole function goes before what stands in it."""
    kept: list[Edit] = []
    for edit in dict.fromkeys(edits):
        if all(edit.end <= other.start or other.end <= edit.start for other in kept):
            kept.append(edit)
    return sorted(kept, key=lambda edit: edit.replacement)  # imports that come to one place


def _raises_less(report: UpgradeReport, mended: Sequence[Mended], path: str, after: bytes, files: WorkTree) -> bool:
    """Whether what was to be mended is: judged anew, on the new content."""
    done = sum(bool(one.edits) and one.use.path == path for one in mended)
    project = Project(files.exists, Overlay(files.read, {path: after}).read)
    left = sum(use.will_raise for use in uses_of([path], project, report.old, report.new).affected)
    return left <= sum(use.will_raise and use.path == path for use in report.uses.affected) - done
