"""AReaL's own functions: of the checkouts that are named, else of its released wheel."""

import os
from pathlib import Path

import pytest
from downloads import unpacked
from downstream.checkouts import AREAL

RELEASE = "1.0.4"
CHECKOUTS = [path for path in os.environ.get(AREAL, "").split(os.pathsep) if path]


@pytest.fixture(params=CHECKOUTS or [f"areal-{RELEASE}"], ids=lambda path: Path(path).name)
def checkout(request: pytest.FixtureRequest) -> str:
    """A folder in which AReaL's package lies."""
    return str(request.param if CHECKOUTS else unpacked("areal", RELEASE))
