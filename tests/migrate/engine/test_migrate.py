"""A migration from end to end, with a codemod of the tests."""

import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sample_repository import CHANGED, FILES, MIGRATED, Sample, planner

from mcore_unpatch.codemods.edits import Edit, Options, Plan, Repository
from mcore_unpatch.errors import UsageError
from mcore_unpatch.findings import Finding
from mcore_unpatch.migrate.engine import migrate, preview
from mcore_unpatch.migrate.undo import undo


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
    assert outcome.remaining == ()
    assert sample.contents() == MIGRATED
    assert sample.status() == [f" M {name}" for name in sorted(CHANGED)]
    again = migrate(sample.request(), planner)
    assert not again.written
    assert sample.contents() == MIGRATED


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
        edits = tuple(replace(edit, applicability="unsafe") for edit in plan.edits)
        return replace(plan, edits=edits, removes=plan.removes if options.unsafe_fixes else ())

    assert not migrate(sample.request(), unsafe).written
    assert sample.contents() == FILES
    assert migrate(sample.request(unsafe_fixes=True), unsafe).written
    assert sample.contents() == MIGRATED


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Edit("rl/actor.py", "R", "safe", 0, 4, b"def (", "t"), "would not compile"),
        (Edit("rl/actor.py", "R", "safe", 0, 0, b"import re\n", "t"), "a second run would change rl/actor.py again"),
        (Edit("rl/actor.py", "R", "safe", 0, 9999, b"", "t"), "outside the file"),
        (Edit("pyproject.toml", "R", "safe", 0, 0, b"", "t"), "not among the files to migrate"),
        (
            Edit("other.py", "R", "safe", 0, 0, FILES["rl/actor.py"], "t"),
            "would add a patch of megatron.core.models.gpt.gpt_model.GPTModel.forward",
        ),
    ],
)
def test_a_wrong_edit_is_found_before_anything_is_written(sample: Sample, edit: Edit, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        migrate(sample.request(), lambda *_: Plan((edit,)))
    assert sample.status() == []


def test_a_finding_that_was_to_go_and_stays_is_found(sample: Sample) -> None:
    def boasting(project: Repository, findings: Sequence[Finding], options: Options) -> Plan:
        if b"install" in project.data("rl/actor.py"):
            return Plan()
        plan = planner(project, findings, options)
        return replace(plan, edits=plan.edits[:1])

    with pytest.raises(UsageError, match=r"rl/deep/trainer.py would still patch .*GPTModel.forward \(MCU601\)"):
        migrate(sample.request(), boasting)
    assert sample.status() == []


def test_overlapping_edits_are_refused_whatever_applies(sample: Sample) -> None:
    first = Edit("other.py", "R", "safe", 0, 5, b"print", "t")
    with pytest.raises(UsageError, match="overlaps"):
        migrate(sample.request(), lambda *_: Plan((first, replace(first, start=3, applicability="display"))))


def test_undo_takes_back_exactly_once(sample: Sample) -> None:
    migrate(sample.request(), planner)
    sample.commit()
    assert undo(sample.root / "rl") == list(CHANGED)
    assert sample.contents() == FILES
    with pytest.raises(UsageError, match=r"no migration of .* is known"):
        undo(sample.root)


def test_undo_refuses_when_a_file_changed_since(sample: Sample) -> None:
    migrate(sample.request(), planner)
    trainer = sample.root / CHANGED[1]
    trainer.write_bytes(trainer.read_bytes() + b"# mine\n")
    (sample.root / CHANGED[0]).unlink()
    with pytest.raises(UsageError, match=r"rl/actor.py \(deleted\)\n  rl/deep/trainer.py \(changed\)"):
        undo(sample.root)
    assert trainer.read_bytes().endswith(b"# mine\n")


def test_undo_works_after_the_repository_was_moved(sample: Sample, tmp_path: Path) -> None:
    migrate(sample.request(), planner)
    sample.root = sample.root.rename(tmp_path / "moved")
    undo(sample.root)
    assert sample.contents() == FILES


def test_the_journal_is_in_the_git_directory(sample: Sample, state_home: Path) -> None:
    migrate(sample.request(), planner)
    assert (sample.root / ".git/mcore-unpatch/state.json").exists()
    assert not state_home.exists()


def test_each_work_tree_has_its_own_journal(sample: Sample, tmp_path: Path) -> None:
    second = tmp_path / "second"
    sample.git("worktree", "add", "-q", str(second))
    migrate(replace(sample.request(), paths=[second]), planner)
    with pytest.raises(UsageError, match="no migration"):
        undo(sample.root)
    assert undo(second) == list(CHANGED)
