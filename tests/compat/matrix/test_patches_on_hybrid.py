"""What the column `Hybrid` says of a patch, held to calls counted on a GPTModel and on the equal HybridModel."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from downstream.overlap import build_moe_model, no_streams
from harness import on_ranks
from harness.faithful import inputs_for
from harness.models import Case, build_model
from harness.training import scheduled
from matrix import patches_on_hybrid as patches

from mcore_unpatch.effects.other_model import Elsewhere, OnOther
from mcore_unpatch.megatron.hybrid import HYBRID
from mcore_unpatch.megatron.megatrons import Megatrons
from mcore_unpatch.survey.core import Core

PLAIN, MOE, MTP = Case(), Case(moe=True), Case(mtp=1)
PLAN = Case(dp=2, moe=True)  # under Megatron's combined schedule
CASES = {
    "method_of_the_model": (PLAIN, "dead", "row"),
    "name_in_the_module_of_the_model": (MTP, "dead", "row"),
    "method_of_the_old_hybrid_model": (PLAIN, "dead", "row"),
    "method_of_the_block": (PLAIN, "dead", "row"),
    "name_in_the_module_of_the_block": (PLAIN, "dead", "row"),
    "offset_of_a_layer": (PLAIN, "dead", "row"),
    "method_of_the_layer": (PLAIN, "halves", "row"),
    "layers_one_by_one": (PLAIN, "halves", "row"),
    "plan_of_a_model": (PLAN, "dead", "row"),
    "step_of_the_combined_schedule": (PLAN, "raises", "row"),
    "layer_of_mtp": (MTP, "acts", "row"),
    "attention": (PLAIN, "acts", "row"),
    "attention_by_its_number": (PLAIN, "renumbered", "numbers"),
    "routes_by_a_helper": (MOE, "renumbered", "numbers"),
    "number_that_is_handed_on": (MOE, "acts", "row"),
    "mlp": (PLAIN, "acts", "row"),
    "loss_of_every_language_model": (PLAIN, "acts", "row"),
    "backward_of_recomputation": (Case(recompute=True), "acts", "row"),
    "output_layer": (PLAIN, "acts", "row"),
    "another_output_layer": (PLAIN, "acts", "row"),
    "forward_of_one_model": (PLAIN, "acts", "row"),
    "end_of_one_model": (PLAIN, "dead", "lacks"),
    "beginning_of_one_model": (PLAIN, "raises", "reads"),
    "more_for_the_blocks_of_one_model": (PLAIN, "raises", "passes"),
    "block_that_is_asked_for": (PLAIN, "dead", "asked"),
    "either_block_that_is_asked_for": (PLAIN, "acts", "row"),
    "model_that_has_to_be_one": (PLAIN, "raises", "asked"),
    "model_that_must_not_be_one": (PLAIN, "dead", "asked"),
    "what_a_helper_gives": (PLAIN, "dead", "given"),
    "what_a_strict_helper_gives": (PLAIN, "raises", "given"),
    "wrap_the_head": (PLAIN, "dead", "subclass"),
}
MADE_BY = {"wrap_the_head": "model_of_our_own"}


@pytest.fixture(scope="module")
def told() -> dict[str, Elsewhere]:
    """What the tool says of the patch of each function."""
    source = Path(inspect.getfile(patches)).read_bytes()
    megatrons = Megatrons()
    core = Core({"patches.py": source}, megatrons)
    on_hybrid = OnOther(core.names, HYBRID, megatrons.every[-1])
    lines = {name: inspect.getsourcelines(getattr(patches, name)) for name in CASES}
    found = {}
    for patch in core.patches:
        for name, (text, first) in lines.items():
            if first <= patch.line < first + len(text):
                assert name not in found, f"two patches in {name}"
                found[name] = on_hybrid.of(core.judge.cases[patch])
    return found


@pytest.mark.parametrize("name", CASES)
def test_what_the_tool_says(told: dict[str, Elsewhere], name: str) -> None:
    _, becomes, why = CASES[name]
    assert (str(told[name].becomes), str(told[name].why)) == (becomes, why)


def test_every_row_is_counted_or_says_why_not(told: dict[str, Elsewhere]) -> None:
    said = {(one.becomes, one.name) for one in told.values() if one.why == "row"}
    assert {(row.becomes, row.why) for row in HYBRID.rows if not row.unseen} <= said
    assert not said & {(row.becomes, row.why) for row in HYBRID.rows if row.unseen}


@contextmanager
def _put_back() -> Iterator[None]:
    before = [(owner, name, vars(owner).get(name)) for owner, name in patches.CHANGED]
    patches.SEEN.clear()
    try:
        yield
    finally:
        for owner, name, value in before:
            if value is not None:
                setattr(owner, name, value)
            elif name in vars(owner):
                delattr(owner, name)


def _run(case: Case, name: str) -> tuple[list[int], str]:
    """What the patch of a function saw, and what was raised."""
    install, is_plan = getattr(patches, MADE_BY.get(name, name)), case.dp > 1
    raised = ""
    with _put_back(), no_streams():
        try:
            if not inspect.signature(install).parameters:
                install()
            model = build_moe_model(case) if is_plan and not case.hybrid else build_model(case)
            if inspect.signature(install).parameters:
                install(model)
            given = inputs_for(case)
            if is_plan:
                _in_a_plan(model, given)
            else:
                torch.autograd.backward(model(**given).mean())
        except (AttributeError, TypeError, AssertionError, RuntimeError) as error:
            raised = f"{type(error).__name__}: {error}"
    return list(patches.SEEN), raised


def _in_a_plan(model: Any, given: dict[str, Any]) -> None:
    model.config.overlap_moe_expert_parallel_comm = True

    def forward_step(data: Any, model: Any, return_schedule_plan: bool = False) -> Any:
        call = {**next(data)}
        call.pop("loss_mask")
        return model.build_schedule_plan(**call), lambda loss: (loss.mean(), {})

    scheduled(Case(), model, forward_step, [given, given])


@on_ranks
@pytest.mark.parametrize(("case", "name"), [(case, name) for name, (case, *_) in CASES.items()])
def test_calls_are_counted(case: Case, name: str) -> None:
    becomes = CASES[name][1]
    on_hybrid, raised = _run(replace(case, hybrid=True), name)
    on_gpt, nothing = _run(case, name)
    is_old = name == "method_of_the_old_hybrid_model"  # which is no GPTModel either
    assert not nothing
    assert bool(on_gpt) != is_old
    assert bool(raised) == (becomes == "raises" or case == PLAN), raised
    if becomes == "dead":
        assert not on_hybrid
    elif becomes == "halves":
        assert len(on_hybrid) == 2 * len(on_gpt)
    elif becomes == "renumbered":
        assert len(on_hybrid) == len(on_gpt)
        assert set(on_hybrid) != set(on_gpt)
    elif becomes == "acts":
        assert set(on_hybrid) == set(on_gpt)
        assert name == "backward_of_recomputation" or len(on_hybrid) == len(on_gpt)
