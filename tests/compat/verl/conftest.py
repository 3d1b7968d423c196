"""The veRL releases that the shims are compared with, downloaded once."""

from collections.abc import Callable

import pytest
from downloads import unpacked


@pytest.fixture
def verl() -> Callable[[str], str]:
    """The folder of a veRL release."""
    return lambda version: str(unpacked("verl", version))


@pytest.fixture
def verl_091(verl: Callable[[str], str]) -> str:
    return verl("0.9.1")


@pytest.fixture
def folder(verl: Callable[[str], str], version: str) -> str:
    """That of the release which a test has as its parameter `version`."""
    return verl(version)
