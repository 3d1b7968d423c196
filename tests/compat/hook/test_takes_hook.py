"""Which signatures have the hook: both keywords by name, or any keyword."""

from types import SimpleNamespace
from typing import Any

import pytest

from mcore_unpatch.compat.hook.find import HookPath, takes_hook


def both(self: Any, output_processor: Any = None, output_processor_context: Any = None) -> None: ...
def first(self: Any, output_processor: Any = None) -> None: ...
def second(self: Any, output_processor_context: Any = None) -> None: ...
def neither(self: Any, labels: Any = None) -> None: ...
def any_keyword(self: Any, **rest: Any) -> None: ...
def one_and_any(self: Any, output_processor: Any = None, **rest: Any) -> None: ...


@pytest.mark.parametrize(
    ("forward", "somehow", "by_name"),
    [
        (both, True, True),
        (first, False, False),
        (second, False, False),
        (neither, False, False),
        (any_keyword, True, False),
        (one_and_any, True, False),
    ],
)
def test_which_forwards_take_the_hook(forward: Any, somehow: bool, by_name: bool) -> None:
    for callee in (forward, forward.__get__(object())):
        assert takes_hook(callee) is somehow
        assert takes_hook(callee, by_name=True) is by_name


@pytest.mark.parametrize(
    ("given", "has"), [({}, True), ({"post_process": True}, True), ({"post_process": False}, False)]
)
def test_which_stage_makes_the_output(given: dict[str, bool], has: bool) -> None:
    """A model that knows nothing of stages makes it."""
    model: Any = SimpleNamespace(**given)
    assert HookPath((), model).has_output is has
