import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from few_lines import HOME, SOURCE


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts a process that imports torch is marked as the tests on ranks are; others start one without."""
    for item in items:
        if "tests/audit/" in item.nodeid:
            imports_torch = "processes" in getattr(item, "fixturenames", ())
            item.add_marker(pytest.mark.ranks if imports_torch else pytest.mark.slow)


@pytest.fixture(scope="session")
def processes() -> None:
    """Named by tests that start processes which import torch."""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module of Megatron's, as far as its name goes."""
    from mcore_unpatch.audit import instances, origin

    file = tmp_path / "of_a_few_lines.py"
    file.write_text(SOURCE)
    spec: Any = importlib.util.spec_from_file_location(HOME, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, HOME, module)
    monkeypatch.setattr(origin, "_by_file", {})
    yield module
    instances._made_by_constructor.cache_clear()
