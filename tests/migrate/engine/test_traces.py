"""Commands that only read say that a migration was killed half way."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcore_unpatch.repository import git
from mcore_unpatch.survey.scan import scan
from mcore_unpatch.survey.survey import ScanOptions
from mcore_unpatch.writing.journal import Record, locate


@pytest.mark.parametrize("under_git", [True, False])
def test_scan_tells_of_an_interrupted_migration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, under_git: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    repository = tmp_path / "repository"
    repository.mkdir()
    if under_git:
        git.run(repository, "init", "--quiet")
    assert not scan([repository], ScanOptions()).notes
    state = locate(repository)
    state.folder.mkdir(parents=True)
    state.save(Record(str(repository), pending="0123456789ab", replacing=True))
    assert any("`unpatch undo`" in note for note in scan([repository], ScanOptions()).notes)
