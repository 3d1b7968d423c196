"""Copies of Megatron's forward before and after `unpatch migrate`: the same results and gradients on real models.

The pairs are those of the codemod's own tests; Megatron's part of a copy comes from the release that runs it.
"""

import runpy
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

TESTS = Path(__file__).parents[2]
PAIRS = TESTS / "migrate/codemods/golden/copies"
Call = Callable[..., Tensor]


def load(name: str, side: str) -> ModuleType:
    composed = runpy.run_path(str(PAIRS.parents[1] / "composed.py"))["composed"]
    module = ModuleType(f"{name}_{side}")
    exec(compile(composed((PAIRS / f"{name}.{side}.py").read_bytes()), name, "exec"), module.__dict__)
    return module


def instance(code: Any, model: Any, call: Call) -> list[Tensor]:
    code.patch_forward(model)
    return [call(temperature=0.7), call()]


def method_type(code: Any, model: Any, call: Call) -> list[Tensor]:
    code.patch([model])
    mask = torch.rand(2, 16, generator=torch.Generator().manual_seed(3))
    return [call(bias=0.5), call(bias=0.25, coefficient=3.0, response_mask=mask)]


def undone(code: Any, model: Any, call: Call) -> list[Tensor]:
    code.patch_forward(model)
    code.patch_forward(model)
    entropy = call()
    code.unpatch_forward(model)
    code.unpatch_forward(model)
    return [entropy, call()]


def for_a_while(code: Any, model: Any, call: Call) -> list[Tensor]:
    with code.top_logits(model, 3):
        top = call()
    return [top, call()]


def lacks_things(code: Any, model: Any, call: Call) -> list[Tensor]:
    code.patch(model)
    return [call(loss_mask=None)]


def postprocess(code: Any, model: Any, call: Call) -> list[Tensor]:
    code.patch_postprocess(model)
    return [call(), call(labels=None)]


def wants_the_model(code: Any, model: Any, call: Call) -> list[Tensor]:
    code.patch(model)
    values = call()
    model.eval()
    return [values, call()]


def class_level(code: Any, model: Any, call: Call) -> list[Tensor]:
    own = type(model).forward
    batch = call.keywords  # type: ignore[attr-defined]
    try:
        code.install()
        return [code.log_softmax(model, batch, 0.7)]
    finally:
        type(model).forward = own  # what the copy did not put back


DRIVERS = [instance, method_type, undone, for_a_while, lacks_things, postprocess, wants_the_model, class_level]
MTP = Case(tied=True, mtp=1)
CASES = [(driver, case) for driver in DRIVERS for case in (Case(), MTP if driver is postprocess else Case(mup=True))]


class _Calls:
    """Calls of one model with the same batch."""

    def __init__(self, model: Any, **keywords: Any) -> None:
        self.model, self.keywords = model, keywords

    def __call__(self, **others: Any) -> Tensor:
        result: Tensor = self.model(**{**self.keywords, **others})
        return result


def _results(driver: Callable[..., list[Tensor]], code: Any, model: Any, inputs: dict[str, Any]) -> dict[str, Tensor]:
    """What a driver gives, and the gradients of all of it."""
    results = driver(code, model, _Calls(model, **inputs))
    generator = torch.Generator().manual_seed(5)
    total = sum((one * torch.randn(one.shape, generator=generator)).sum() for one in results)
    torch.autograd.backward(total)
    return {**{str(at): one.detach() for at, one in enumerate(results)}, **gradients_of(model)}


def _assert_same(before: dict[str, Tensor], after: dict[str, Tensor]) -> None:
    assert before.keys() == after.keys()
    assert [name for name, value in before.items() if not torch.equal(value, after[name])] == []
    assert any(value.abs().sum() > 0 for value in before.values())


def _before_and_after(name: str, case: Case) -> None:
    start_world(case)
    driver, inputs = globals()[name], inputs_for(case)
    sides = []
    for side in ("in", "out"):
        model = build_model(case)
        sides.append(_results(driver, load(name, side), model, inputs))
    _assert_same(*sides)
    assert not foreign_methods(model)


@pytest.mark.parametrize(("driver", "case"), CASES, ids=lambda one: getattr(one, "__name__", str(one)))
def test_a_migrated_copy_gives_what_it_gave(release: str, driver: Callable[..., Any], case: Case) -> None:
    run_on_ranks(release, 1, _before_and_after, driver.__name__, case)


def test_every_pair_is_run() -> None:
    assert {path.name.removesuffix(".out.py") for path in PAIRS.glob("*.out.py")} == {one.__name__ for one in DRIVERS}
