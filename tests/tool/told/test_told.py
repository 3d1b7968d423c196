"""Every sentence about every patch that the tests have is reviewed: a change of one is seen."""

from pathlib import Path

import pytest
from told.told import COMMANDS, HERE, make_repository, told


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("told")
    make_repository(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_told(name: str, repository: Path) -> None:
    text = told(name, repository)
    reviewed = (HERE / f"{name}.txt").read_text()
    assert text == reviewed, "if that is meant: python tests/tool/told/told.py, and read its diff"
