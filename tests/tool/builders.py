"""The builders of the data that the tool ships: `tools/` of a checkout."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


def load_builder(name: str) -> ModuleType:
    """One of them, imported; the test is skipped where an installed wheel is tested, which has none."""
    if not TOOLS.is_dir():
        pytest.skip("the builders are in the checkout alone")
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
