"""Methods added to Megatron's timers, before and after `unpatch migrate`: the functions give what the methods gave."""

from pathlib import Path
from types import ModuleType

import pytest
from harness import run_on_ranks
from harness.files import load_file
from harness.models import Case, start_world
from megatron.core.timers import Timers

PAIRS = Path(__file__).parents[2] / "migrate/codemods/golden/added"
NAMES = sorted(path.name.removesuffix(".out.py") for path in PAIRS.glob("*.out.py"))


def _load(name: str, side: str) -> ModuleType:
    return load_file(PAIRS / f"{name}.{side}.py")


def _before_and_after(name: str) -> None:
    start_world(Case())
    own = set(vars(Timers))
    after = _load(name, "out")
    timers = after.make_timers()
    assert set(vars(Timers)) == own
    result = after.report(timers)
    assert result
    before = _load(name, "in")
    for key, value in vars(before.make_timers()).items():  # what was bound to its own timers
        if callable(value) and not hasattr(timers, key):
            setattr(timers, key, value.__func__.__get__(timers))
    assert before.report(timers) == result


@pytest.mark.parametrize("name", NAMES)
def test_the_function_gives_what_the_method_gave(release: str, name: str) -> None:
    run_on_ranks(release, 1, _before_and_after, name)
