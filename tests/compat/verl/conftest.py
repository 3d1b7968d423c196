"""The veRL releases that the shims are compared with, downloaded once."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from downloads import unpacked


@pytest.fixture
def verl() -> Callable[[str], str]:
    """The folder of a veRL release."""
    return lambda version: str(unpacked("verl", version))


@pytest.fixture
def verl_091(verl: Callable[[str], str]) -> str:
    return verl("0.9.1")
