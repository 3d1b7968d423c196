"""Makes `harness`, and `downloads` one folder up, importable, and ends the worker processes with the session."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from harness.pool import RELEASES, shut_down


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    """Each megatron-core release the promises are held to."""
    return str(request.param)


@pytest.fixture(scope="session", autouse=True)
def _end_the_worker_processes() -> Iterator[None]:
    yield
    shut_down()
