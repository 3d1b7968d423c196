"""What holds for every test, alone or among others."""

import gc
import os
import random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from prepared import SHARED
from skipping import pytest_terminal_summary as pytest_terminal_summary
from watchdog import Watchdog

# A first example may import torch and Megatron, and a machine may be busy: no example has a deadline of its own.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

# What one test found is not remembered for another, nor in the cache of who runs them.
os.environ["MCORE_UNPATCH_NO_CACHE"] = "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--order-seed", type=int, help="run the tests in the random order of this seed")
    parser.addoption(
        "--every-case", action="store_true", help="what `make everything` runs: all combinations on all releases"
    )


def pytest_configure(config: pytest.Config) -> None:
    if SHARED not in os.environ:  # in the process that starts the workers
        folder = TemporaryDirectory(prefix="prepared-")
        os.environ[SHARED] = folder.name
        config.add_cleanup(folder.cleanup)
    config.pluginmanager.register(Watchdog(config))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "migrated" in getattr(item, "fixturenames", ()):  # whole releases of veRL
            item.add_marker("slow")
    if not config.getoption("--every-case"):
        rare = [item for item in items if item.get_closest_marker("every_case")]
        config.hook.pytest_deselected(items=rare)
        items[:] = [item for item in items if item not in rare]
    items.sort(key=lambda item: item.get_closest_marker("first") is None)
    if (seed := config.getoption("--order-seed")) is not None:
        random.Random(seed).shuffle(items)


def pytest_collection_finish() -> None:
    """What is loaded by now stays: the collector need not look through torch, Megatron and all tests over and over."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No process waits for the lock of another, nor touches the state of who runs the tests."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
