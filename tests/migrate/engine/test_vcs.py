"""Nothing is written where git could not show it, unless the user says so."""

from pathlib import Path

import pytest
from sample_repository import FILES, MIGRATED, Sample, planner

from mcore_unpatch.errors import UsageError
from mcore_unpatch.migrate.run import migrate, preview
from mcore_unpatch.writing.journal import undo


def test_uncommitted_changes_are_listed(sample: Sample) -> None:
    (sample.root / "other.py").write_bytes(b"print('mine')\n")
    (sample.root / "rl/new name.py").write_bytes(b"")
    sample.git("add", "rl/new name.py")
    with pytest.raises(UsageError, match=r"/other.py \(changed\)\n .*/rl/new name.py \(changed\)\n.*--allow-dirty"):
        migrate(sample.request(), planner)
    assert (sample.root / "rl/actor.py").read_bytes() == FILES["rl/actor.py"]
    preview(sample.request(), planner)
    migrate(sample.request(allow_dirty=True), planner)
    assert (sample.root / "rl/actor.py").read_bytes() == MIGRATED["rl/actor.py"]


def test_an_untracked_file_stops_only_if_it_would_be_written(sample: Sample) -> None:
    (sample.root / "notes.txt").write_text("mine")
    copy = sample.root / "copy.py"
    copy.write_bytes(FILES["rl/actor.py"])
    with pytest.raises(UsageError, match=r"written:\n .*/copy.py \(not tracked\)\nCommit"):
        migrate(sample.request(), planner)
    copy.unlink()
    assert migrate(sample.request(), planner).written


def test_a_second_run_is_no_error(sample: Sample) -> None:
    migrate(sample.request(), planner)
    assert not migrate(sample.request(), planner).written
    (sample.root / "rl/actor.py").write_bytes(FILES["rl/actor.py"] + b"mine = 1\n")
    with pytest.raises(UsageError, match=r"/rl/actor.py \(changed\)"):
        migrate(sample.request(), planner)


def test_outside_git_it_has_to_be_allowed(tmp_path: Path, state_home: Path) -> None:
    sample = Sample(tmp_path / "plain")
    with pytest.raises(UsageError, match=r"is not a git repository.*--allow-no-vcs"):
        migrate(sample.request(), planner)
    assert sample.contents() == FILES
    migrate(sample.request(allow_no_vcs=True), planner)
    assert sample.contents() == MIGRATED
    assert sorted(p.name for p in sample.root.iterdir()) == ["other.py", "pyproject.toml", "rl"]
    assert len(list(state_home.glob("mcore-unpatch/*/undo.json"))) == 1
    undo(sample.root)
    assert sample.contents() == FILES


def test_a_state_folder_inside_the_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = Sample(tmp_path / "plain")
    monkeypatch.setenv("XDG_STATE_HOME", str(sample.root / "state"))
    with pytest.raises(UsageError, match="set XDG_STATE_HOME"):
        migrate(sample.request(allow_no_vcs=True), planner)
    assert not (sample.root / "state").exists()


def test_a_repository_git_cannot_read_is_not_taken_for_a_plain_folder(tmp_path: Path) -> None:
    sample = Sample(tmp_path / "broken")
    (sample.root / ".git").write_text("gitdir: nowhere\n")
    with pytest.raises(UsageError, match=r"git cannot read this repository: .*nowhere"):
        migrate(sample.request(), planner)
    assert sample.contents() == FILES
