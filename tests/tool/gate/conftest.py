"""What several tests of the gate begin with."""

from pathlib import Path

import pytest
from repository import Repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A branch `main` without a patch; the branch `work` is checked out."""
    made = Repository(tmp_path / "repository")
    made.commit({"plain.py": "x = 1\n"})
    made.git("checkout", "--quiet", "-b", "work")
    return made
