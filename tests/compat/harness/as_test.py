"""A test whose body runs on the ranks: pytest collects it, and every rank runs it with the model of its case."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from harness.pool import RELEASES, run_on_ranks

Test = Callable[..., None]


def on_ranks(what: Any = None, *, release: str | None = None) -> Any:
    """Run the body of the test on as many ranks as its `case` has, with each megatron-core release, or with this one.

    The case is the parameter `case`, else the one given here (`@on_ranks(Case(tp=2))`), else the plainest. The world of
    that case is laid out before. `model` and `inputs`, if the test takes them, are made on each rank: the case's model
    and this rank's arguments for it. `@on_ranks(2)` is for tests without a model: two ranks and no layout.
    """
    given = () if what is None or callable(what) else (what,)

    def mark(test: Test) -> Test:
        marked: Test = pytest.mark.on_ranks(*given, release=release)(test)
        return marked if release else pytest.mark.usefixtures("release")(marked)

    return mark(what) if callable(what) else mark


def on_releases(values: Sequence[Any], older: int) -> list[tuple[Any, ...]]:
    """For `parametrize(("release", ...), ...)`: every value, and the first `older` alone with the oldest release.

    What differs between releases is how Megatron comes to us; a case of each kind shows that.
    """
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    return [(release, *row) for release in RELEASES for row in (rows[:older] if release == RELEASES[0] else rows)]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Send a test with this mark to the ranks instead of calling it here."""
    marker = pyfuncitem.get_closest_marker("on_ranks")
    if marker is None:
        return None
    from harness.models import Case

    given: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    case = given.get("case") or (marker.args[0] if marker.args else Case())
    if "case" in given:
        given["case"] = case
    release = marker.kwargs["release"] or pyfuncitem.funcargs["release"]
    ranks = case if isinstance(case, int) else case.ranks
    run_on_ranks(release, ranks, run_test, str(pyfuncitem.path), pyfuncitem.function.__name__, case, given)
    return True


def run_test(path: str, name: str, case: Any, given: dict[str, Any]) -> None:
    """On a rank: the test `name` of the file at `path`, in the world of `case`."""
    from harness.faithful import inputs_for
    from harness.models import Case, build_model, start_world
    from harness.worker import load

    if isinstance(case, Case):
        start_world(case)
    if "model" in given:
        given["model"] = build_model(case)
    if "inputs" in given:
        given["inputs"] = inputs_for(case)
    getattr(load(path), name)(**given)


@pytest.fixture
def case() -> None:
    """The case of a test on ranks that is not parametrised: what `on_ranks` names."""


@pytest.fixture
def model() -> None:
    """The model of a test on ranks: each rank builds its own."""


@pytest.fixture
def inputs() -> None:
    """What that model takes, likewise."""
