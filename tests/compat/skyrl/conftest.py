"""SkyRL itself: its newest release, downloaded, and any checkout that the environment names."""

import os

import pytest
from downloads import unpacked
from downstream.checkouts import SKYRL

NEWEST = "0.4.0"
CHECKOUTS = [path for path in os.environ.get(SKYRL, "").split(os.pathsep) if path]


@pytest.fixture(params=[NEWEST, *CHECKOUTS])
def checkout(request: pytest.FixtureRequest) -> str:
    source = str(request.param)
    return str(unpacked("skyrl", source)) if source == NEWEST else source
