"""A migration from end to end, with a codemod of the tests."""

import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sample_repository import CHANGED, FILES, MIGRATED, Sample, planner

from mcore_unpatch.editing.edits import Edit, Options, Plan, Repository
from mcore_unpatch.errors import UsageError
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.migrate.run import migrate, preview
from mcore_unpatch.scanner.sources.work_tree import WorkTree
from mcore_unpatch.survey.fixes import Planner
from mcore_unpatch.writing.journal import undo

HIDDEN = b"GPTModel._postprocess = forward\n"


def nothing(project: Repository, findings: Sequence[Finding], options: Options) -> Plan:
    return Plan()


def test_nothing_to_do_writes_nothing(sample: Sample) -> None:
    outcome = migrate(sample.request(), nothing)
    assert not outcome.written
    assert outcome.rewrites == []
    assert len(outcome.remaining) == 2
    assert sample.status() == []


def test_a_preview_writes_nothing(sample: Sample) -> None:
    outcome = preview(sample.request(), planner)
    assert [item.path for item in outcome.rewrites] == list(CHANGED)
    assert sample.status() == []


def test_writes_and_the_second_run_changes_nothing(sample: Sample) -> None:
    outcome = migrate(sample.request(), planner)
    assert outcome.written
    assert outcome.remaining == []
    assert sample.contents() == MIGRATED
    assert sample.status() == [f" M {name}" for name in sorted(CHANGED)]
    again = migrate(sample.request(), planner)
    assert not again.written
    assert sample.contents() == MIGRATED


def emptied(project: Repository, findings: Sequence[Finding], options: Options) -> Plan:
    """Nothing is left of the files with a patch."""
    edits = [
        Edit(path, "MCU601", "exact", 0, len(project.data(path)), b"pass\n", "is empty")
        for path in sorted(project.editable & {finding.path for finding in findings})
    ]
    return Plan(tuple(edits), removes=tuple(findings))


def test_edits_are_placed_in_the_files_as_they_were_once_they_are_written(sample: Sample) -> None:
    """A large repository does not keep all bytes: some are read again, and are others by then."""
    outcome = migrate(sample.request(), emptied)
    assert outcome.written
    outcome.survey.files = WorkTree(outcome.survey.found.top)
    for change in outcome.changes:
        assert change.before.end == len(FILES[change.edit.path])


def test_a_file_mode_and_a_symbolic_link_stay(sample: Sample) -> None:
    actor = sample.root / "rl/actor.py"
    actor.chmod(0o751)
    link = sample.root / "rl/link.py"
    link.symlink_to("actor.py")
    sample.commit()
    migrate(replace(sample.request(), paths=[link]), planner)
    assert stat.S_IMODE(actor.stat().st_mode) == 0o751
    assert link.is_symlink()
    assert actor.read_bytes() == MIGRATED["rl/actor.py"]


def test_a_subfolder_is_migrated_alone(sample: Sample) -> None:
    outcome = migrate(replace(sample.request(), paths=[sample.root / "rl/deep"]), planner)
    assert [item.path for item in outcome.rewrites] == ["rl/deep/trainer.py"]
    assert b"--- a/rl/deep/trainer.py\n" in outcome.diff()


def test_unsafe_edits_wait_to_be_asked_for(sample: Sample) -> None:
    def unsafe(project: Repository, findings: Sequence[Finding], options: Options) -> Plan:
        plan = planner(project, findings, options)
        return plan if options.unsafe_fixes else replace(plan, edits=(), removes=())

    assert not migrate(sample.request(), unsafe).written
    assert sample.contents() == FILES
    assert migrate(sample.request(unsafe_fixes=True), unsafe).written
    assert sample.contents() == MIGRATED


def beside(wrong: Sequence[Edit]) -> Planner:
    """The sample's codemod, which makes these edits instead of its own in the files they are in."""

    def plan(project: Repository, findings: Sequence[Finding], options: Options) -> Plan:
        good = planner(project, findings, options)
        added = [edit for edit in wrong if edit.path in project.editable]
        paths = {edit.path for edit in added}
        edits = [*added, *(edit for edit in good.edits if edit.path not in paths)]
        return replace(good, edits=tuple(edits), removes=tuple(f for f in good.removes if f.path not in paths))

    return plan


def check_left(sample: Sample, planner: Planner, path: str, reason: str) -> None:
    """One file stays as it is, with the reason; the others are migrated."""
    outcome = migrate(sample.request(), planner)
    assert outcome.written
    assert sample.contents() == MIGRATED | {path: FILES[path]}
    told = [remark.text for remark in outcome.plan.remarks if remark.path == path and "left as it is" in remark.text]
    assert [reason in text for text in told] == [True], told
    undo(sample.root)
    assert sample.contents() == FILES


ACTOR_EDIT = Edit("rl/actor.py", "R", "exact", 0, 0, b"", "t")


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (replace(ACTOR_EDIT, end=4, replacement=b"def ("), "rewritten it would not compile (invalid syntax, line 1)"),
        (replace(ACTOR_EDIT, replacement=b"import re\n"), "a second run would change it again (t)"),
        (replace(ACTOR_EDIT, end=9999), "its edits do not fit together"),
        (
            replace(ACTOR_EDIT, start=len(FILES["rl/actor.py"]), end=len(FILES["rl/actor.py"]), replacement=HIDDEN),
            "rewritten it would patch megatron.core.models.gpt.gpt_model.GPTModel._postprocess",
        ),
    ],
)
def test_one_wrong_edit_does_not_stop_the_others(sample: Sample, edit: Edit, reason: str) -> None:
    check_left(sample, beside([edit]), "rl/actor.py", reason)


def test_a_file_that_parses_and_does_not_compile(sample: Sample) -> None:
    path = "rl/deep/trainer.py"
    broken = FILES[path] + b"return 3\r\n"
    (sample.root / path).write_bytes(broken)
    sample.commit()
    outcome = migrate(sample.request(), planner)
    assert (sample.root / path).read_bytes() == broken
    assert (sample.root / "rl/actor.py").read_bytes() == MIGRATED["rl/actor.py"]
    assert any(
        "it does not compile as it is ('return' outside function, line 7)" in one.text for one in outcome.remarks
    )
    assert not outcome.errors


def test_an_edit_of_a_file_nobody_named(sample: Sample) -> None:
    with pytest.raises(UsageError, match="not among the files to migrate"):
        migrate(sample.request(), lambda *_: Plan((replace(ACTOR_EDIT, path="pyproject.toml"),)))
    assert sample.status() == []


def test_a_finding_that_was_to_go_and_stays_is_found(sample: Sample) -> None:
    def boasting(project: Repository, findings: Sequence[Finding], options: Options) -> Plan:
        plan = planner(project, findings, options)
        kept = [edit for edit in plan.edits if edit.path != "rl/deep/trainer.py"]
        if "rl/deep/trainer.py" in project.editable and kept:
            kept.append(Edit("rl/deep/trainer.py", "R", "exact", 0, 0, b"import re\r\n", "t"))
            return replace(plan, edits=tuple(kept))
        removed = tuple(finding for finding in plan.removes if finding.path != "rl/deep/trainer.py")
        return replace(plan, edits=tuple(kept), removes=removed)

    check_left(sample, boasting, "rl/deep/trainer.py", "rewritten it would still patch megatron.core.models.gpt")


def test_overlapping_edits_are_refused(sample: Sample) -> None:
    first = replace(ACTOR_EDIT, end=5, replacement=b"from ")
    wrong = [first, replace(first, start=3)]
    check_left(sample, beside(wrong), "rl/actor.py", "overlaps")


def test_undo_takes_back_exactly_once(sample: Sample) -> None:
    migrate(sample.request(), planner)
    sample.commit()
    assert undo(sample.root / "rl") == list(CHANGED)
    assert sample.contents() == FILES
    with pytest.raises(UsageError, match=r"Nothing to undo in "):
        undo(sample.root)


def test_undo_works_after_the_repository_was_moved(sample: Sample, tmp_path: Path) -> None:
    migrate(sample.request(), planner)
    sample.root = sample.root.rename(tmp_path / "moved")
    undo(sample.root)
    assert sample.contents() == FILES


def test_the_journal_is_in_the_git_directory(sample: Sample, state_home: Path) -> None:
    migrate(sample.request(), planner)
    assert (sample.root / ".git/mcore-unpatch/undo.json").exists()
    assert not state_home.exists()


def test_each_work_tree_has_its_own_journal(sample: Sample, tmp_path: Path) -> None:
    second = tmp_path / "second"
    sample.git("worktree", "add", "-q", str(second))
    migrate(replace(sample.request(), paths=[second]), planner)
    with pytest.raises(UsageError, match="Nothing to undo"):
        undo(sample.root)
    assert undo(second) == list(CHANGED)
