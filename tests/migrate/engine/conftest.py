"""Makes the helpers beside the tests importable, and keeps the user's own state folder out of them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

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
