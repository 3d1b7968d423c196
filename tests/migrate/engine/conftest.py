"""Keeps the user's own state folder out of the tests."""

from pathlib import Path

import pytest
from sample_repository import Sample


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of its own for every test."""
    home = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    return home


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    """A committed repository with two patches in three files."""
    return Sample(tmp_path / "repo").commit()
