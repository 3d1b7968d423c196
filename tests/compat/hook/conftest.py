"""Megatron's process groups of one GPU."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.gpu import CASE, one_rank
from harness.models import start_world
from megatron.core import parallel_state


@pytest.fixture
def world(tmp_path: Path) -> Iterator[None]:
    with one_rank(tmp_path):
        start_world(CASE)
        yield
        parallel_state.destroy_model_parallel()
