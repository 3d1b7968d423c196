"""The tolerances notice a real fault: every gradient wrong by a relative 1e-4 is red, and nothing is red without it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from downstream.comparing import Run, assert_same
from fused_head.oracle import assert_exact, make_inputs, materialised, results
from torch import Tensor

from harness import run_on_ranks
from harness.faithful import TEMPERATURE, in_float64, inputs_for, through_the_hook, weighted
from harness.models import Case, build_model, start_world
from harness.oracle import assert_no_worse, default_path
from harness.pool import INSTALLED
from harness.rounding import FLOOR, assert_agree, assert_close, tolerance
from mcore_unpatch.compat import linear_logprob

FAULT = 1 + 1e-4


def notices(check: Callable[[], None]) -> bool:
    try:
        check()
    except AssertionError:
        return True
    return False


def test_every_tolerance_of_float32_lies_below_the_fault() -> None:
    assert 2 * tolerance() < 1e-4 / 5
    assert tolerance(sums=151_936) < 1e-4 / 2  # the longest sum of these tests: a whole vocabulary
    assert tolerance(torch.float64) < 1e-13
    assert tolerance(torch.float16) < 1e-3 < tolerance(torch.bfloat16) < 1e-2


@pytest.mark.parametrize("name", ["logprobs", "entropy", "hidden.grad", "weight.grad"])
@pytest.mark.parametrize(("tokens", "width", "vocab"), [(1, 1, 7), (4097, 33, 7), (3, 33, 151936)])
def test_in_the_operator(tokens: int, width: int, vocab: int, name: str) -> None:
    inputs = make_inputs(tokens, width, vocab)
    truth, plain = results(materialised, inputs.in_float64()), results(materialised, inputs)
    found = results(linear_logprob, inputs)
    assert not notices(lambda: assert_exact(found, truth, inputs, plain))
    assert notices(lambda: assert_exact({**found, name: found[name] * FAULT}, truth, inputs, plain))


def _in_a_model(case: Case) -> tuple[dict[str, float], dict[str, float]]:
    """The sizes of the gradients that a test of the matrix and a test against a patch notice, and of those neither."""
    start_world(case)
    model = build_model(case)
    inputs = inputs_for(case)
    truth, default = (
        default_path(of, inputs, inputs["labels"], TEMPERATURE, weighted) for of in (in_float64(case, model), model)
    )
    ours = through_the_hook(model, inputs)
    assert_no_worse(ours, default, truth, case.dtype)
    theirs = Run(default.values(), default.gradients, {})
    assert_same(Run(ours.values(), ours.gradients, {}), theirs)
    seen, missed = {}, {}
    for name, gradient in ours.gradients.items():
        ours.gradients[name] = gradient * FAULT
        run = Run(default.values(), ours.gradients, {})
        both = notices(lambda: assert_no_worse(ours, default, truth, case.dtype)) and notices(
            lambda run=run: assert_same(run, theirs)  # type: ignore[misc]
        )
        (seen if both else missed)[name] = gradient.norm().item()
        ours.gradients[name] = gradient
    return seen, missed


@pytest.mark.parametrize(
    "case", [Case(), Case(tp=2, mtp=1, mup=True), Case(packed=True, cp=2), Case(bias=True)], ids=str
)
def test_in_a_model(case: Case) -> None:
    """Left out is only what is nothing but rounding: far below the floor, beside gradients of another size."""
    for seen, missed in run_on_ranks(INSTALLED, case.ranks, _in_a_model, case):
        assert len(seen) > len(missed)
        assert all(size < FLOOR * max(seen.values()) / 5 for size in missed.values()), missed


def test_one_wrong_element_of_many() -> None:
    truth = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    wrong = truth.clone()
    wrong[truth.abs().argmax()] *= 1 + 1e-3
    assert notices(lambda: assert_close(wrong, truth))
    assert not notices(lambda: assert_close(truth * (1 + torch.finfo(torch.float32).eps), truth))


@pytest.mark.parametrize("wrong", [{}, {"a": torch.ones(2)}, {"a": torch.ones(3), "b": torch.ones(1)}], ids=str)
def test_missing_names_and_other_shapes(wrong: dict[str, Tensor]) -> None:
    assert notices(lambda: assert_agree(wrong, {"a": torch.ones(3)}))


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_what_is_no_number(broken: Any) -> None:
    assert notices(lambda: assert_close(torch.tensor([1.0, broken]), torch.ones(2)))
    assert notices(lambda: assert_close(torch.ones(2), torch.tensor([1.0, broken])))
