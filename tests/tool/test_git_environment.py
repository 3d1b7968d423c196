"""What git hands to its hooks in the environment means the same from wherever git is asked."""

from pathlib import Path

import pytest

from mcore_unpatch.repository.git import _environment

NAMES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")


@pytest.mark.parametrize("name", NAMES)
def test_a_relative_path_becomes_absolute(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for other in NAMES:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, "there")
    assert _environment({}, None)[name] == str(tmp_path.resolve() / "there")
