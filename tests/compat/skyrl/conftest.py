"""SkyRL itself: its releases, downloaded, and any checkout that the environment names."""

import os

import pytest
from downloads import unpacked
from downstream.checkouts import SKYRL

NEWEST = "0.4.0"
RELEASES = ("0.3.0", NEWEST)
CHECKOUTS = [path for path in os.environ.get(SKYRL, "").split(os.pathsep) if path]


def _folder(source: str) -> str:
    return str(unpacked("skyrl", source)) if source in RELEASES else source


@pytest.fixture(params=[NEWEST, *CHECKOUTS])
def checkout(request: pytest.FixtureRequest) -> str:
    """The newest release, and checkouts."""
    return _folder(request.param)


@pytest.fixture(params=[*RELEASES, *CHECKOUTS])
def any_checkout(request: pytest.FixtureRequest) -> str:
    """Every release that has the fused LM head, and checkouts."""
    return _folder(request.param)
