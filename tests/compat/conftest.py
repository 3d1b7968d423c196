"""Ends the worker processes with the session."""

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

# Before the first import of torch: tests run side by side, and threads that wait by spinning would only be in the way.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from harness.as_test import case, inputs, model, pytest_pyfunc_call
from harness.pool import RELEASES, shut_down

HERE = Path(__file__).parent

__all__ = ["case", "inputs", "model", "pytest_pyfunc_call"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what starts ranks, so that `-m "not ranks"` leaves it out; see `_more_of_the_same` too."""
    for item in items:
        if isinstance(item, pytest.Function):
            starts = "release" in item.fixturenames or "run_on_ranks" in item.function.__code__.co_names
            if starts or item.get_closest_marker("on_ranks"):
                item.add_marker("ranks")
    if not config.getoption("--every-case"):
        same = _more_of_the_same(items) + _of_further_compilers(items)
        items[:] = [item for item in items if item not in same]
        config.hook.pytest_deselected(items=same)


def _more_of_the_same(items: list[pytest.Item]) -> list[pytest.Item]:
    """Tests on the older release whose every setting another case of the same test has there, in some combination.

    What differs between releases is how Megatron comes to us. The newest has every combination, and with `--every-case`
    the older one too.
    """
    settings = defaultdict(dict)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and item.path.is_relative_to(HERE):
            given = item.callspec.params
            if given.get("release") == RELEASES[0]:
                settings[item.path, item.originalname][item] = {
                    (name, part) for name, value in given.items() for part in str(value).split(",")
                }
    same = []
    for of_test in settings.values():
        met: set[tuple[str, str]] = set()
        for item in sorted(of_test, key=lambda item: -len(of_test[item])):
            if of_test[item] <= met:
                same.append(item)
            met |= of_test[item]
    return same


def _of_further_compilers(items: list[pytest.Item]) -> list[pytest.Item]:
    """Compilations of what another compiles too, for other sizes of blocks, operands, expressions or machines."""
    first = {"card": (90, "gfx942"), "dtype": ("bf16",), "kind": (2,), "compiler": ("aot_eager",)}
    given = [(item, item.callspec.params) for item in items if hasattr(item, "callspec")]
    compiled = [(item, own) for item, own in given if "card" in own or "compiler" in own]
    return [
        item for item, own in compiled if any(own.get(name, known[0]) not in known for name, known in first.items())
    ]


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    """Each megatron-core release the promises are held to."""
    return str(request.param)


@pytest.fixture(scope="session", autouse=True)
def _end_the_worker_processes() -> Iterator[None]:
    yield
    shut_down()


@pytest.fixture(scope="session", autouse=True)
def _as_built_without_cuda() -> Iterator[None]:
    """A test that passes here must pass with torch's CPU build, unless it is one for a GPU."""
    import torch
    from harness.cpu import cpu_build

    with nullcontext() if torch.cuda.is_available() else cpu_build():
        yield


@pytest.fixture(autouse=True)
def _under_other_conditions() -> Iterator[None]:
    """What `make margins` asks for."""
    from harness.margins import conditions

    with conditions():
        yield
