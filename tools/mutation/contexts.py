"""A pytest plugin for the run that finds out which test runs which line: lines are put down to the test of the moment.

What runs in a fixture that several share belongs to their file, what runs on import to every file. Each test starts
with the product's caches empty: what it needs, it runs.
"""

import sys
from collections.abc import Generator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage
from hypothesis import settings

import mcore_unpatch


def pytest_sessionstart() -> None:
    """Import the tool's modules: they import each other late, and the first test to do so is not the only one.

    A few examples of a property show the lines that it reaches.
    """
    settings.register_profile("few", max_examples=5, deadline=None)
    settings.load_profile("few")
    top = Path(mcore_unpatch.__path__[0])
    for path in sorted(top.glob("**/*.py")):
        name = path.relative_to(top.parent).with_suffix("").as_posix()
        if path.stem != "__main__" and not name.startswith("mcore_unpatch/compat"):
            import_module(name.removesuffix("/__init__").replace("/", "."))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Name the test."""
    _empty_caches()
    _name(item.nodeid)
    try:
        return (yield)
    finally:
        _name("")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Name the file while a shared fixture is made."""
    if fixturedef.scope == "function":
        return (yield)
    test = request._pyfuncitem.nodeid
    _name(test.partition("::")[0])
    try:
        return (yield)
    finally:
        _name(test)


def _name(context: str) -> None:
    if measuring := Coverage.current():
        measuring.switch_context(context)


def _empty_caches() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("mcore_unpatch"):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
