"""Megatron's process groups of one GPU, and what a downstream puts in the place of the output layer."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from downloads import unpacked
from harness.gpu import CASE, one_rank
from harness.models import start_world
from megatron.core import parallel_state


@pytest.fixture
def world(tmp_path: Path) -> Iterator[None]:
    with one_rank(tmp_path):
        start_world(CASE)
        yield
        parallel_state.destroy_model_parallel()


@pytest.fixture(scope="session")
def verl_value_layer() -> str:
    """The source of veRL's class for the last layer of a critic."""
    text = (unpacked("verl", "0.9.1") / "verl/models/mcore/bridge.py").read_text()
    classes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef))
    return next(ast.unparse(node) for node in classes if node.name == "LinearForLastLayer")
