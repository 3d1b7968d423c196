"""Wrappers around `forward` before and after `unpatch migrate`: the same logits and gradients on a real model.

The pairs are those of the codemod's own tests; each side runs on a model of its own with the same parameters.
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from harness import run_on_ranks
from harness.faithful import inputs_for
from harness.models import Case, build_model, start_world
from harness.oracle import gradients_of
from torch import Tensor

from mcore_unpatch.compat import foreign_methods

PAIRS = Path(__file__).parents[2] / "migrate/codemods/golden/wrappers"
Call = Callable[[], Tensor]


def load(name: str, side: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_{side}", PAIRS / f"{name}.{side}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _installed(name: str, *arguments: Any) -> Callable[[Any, Any, Call], Tensor]:
    def run(wrapper: Any, model: Any, call: Call) -> Tensor:
        getattr(wrapper, name)(model, *arguments)
        return call()

    return run


def _counts_calls(wrapper: Any, model: Any, call: Call) -> Tensor:
    wrapper.count(model, "decoder")
    logits = call()
    assert wrapper.CALLS == ["decoder"]
    return logits


def _undone(wrapper: Any, model: Any, call: Call) -> Tensor:
    with wrapper.recorded(model, []) as seen:
        logits = call()
    assert torch.equal(call(), logits)
    ((names, hidden),) = seen
    assert "hidden_states" in names
    assert hidden.shape[-1] == model.config.hidden_size
    return logits


DRIVERS: dict[str, Callable[[Any, Any, Call], Tensor]] = {
    "bound_to_the_module": _installed("double"),
    "bound_values": _installed("scaled", 4.0),
    "changes_an_argument": _installed("detach_encoder"),
    "changes_the_output": _installed("scale_embeddings", 3.0),
    "counts_calls": _counts_calls,
    "in_one_expression": _installed("in_double"),
    "named_parameter_changed": _installed("requires_gradient"),
    "named_parameter_read": _installed("residual"),
    "output_and_input": _installed("residual"),
    "parameter_passed_on": _installed("halve"),
    "undone": _undone,
}
SAME_AS_WITHOUT = {"counts_calls", "in_one_expression", "named_parameter_changed", "undone"}


def _before_and_after(name: str) -> None:
    case = Case()
    start_world(case)
    inputs = {**inputs_for(case), "labels": None}
    sides = []
    for side in ("", "in", "out"):
        model = build_model(case)
        call = lambda model=model: model(**inputs)  # noqa: E731
        logits = DRIVERS[name](load(name, side), model, call) if side else call()
        factors = torch.randn(logits.shape, generator=torch.Generator().manual_seed(5))
        torch.autograd.backward((logits * factors).sum())
        sides.append({"logits": logits.detach(), **gradients_of(model)})
        parts = list(model.modules())
        if side == "out":
            assert not any(foreign_methods(part) for part in parts)
        hooks = sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in parts)
        assert hooks == (side == "out" and name != "undone")
    plain, before, after = sides
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[key]) for key, value in before.items())
    changes = any(not torch.equal(value, plain[key]) for key, value in before.items())
    assert changes is (name not in SAME_AS_WITHOUT)


@pytest.mark.parametrize("name", DRIVERS)
def test_a_hook_gives_what_the_wrapper_gave(release: str, name: str) -> None:
    run_on_ranks(release, 1, _before_and_after, name)


def test_every_pair_is_run() -> None:
    assert {path.name.removesuffix(".out.py") for path in PAIRS.glob("*.out.py")} == set(DRIVERS)
