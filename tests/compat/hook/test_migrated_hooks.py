"""Wrappers around `forward` before and after `unpatch migrate`: the same logits and gradients on a real model.

The pairs are those of the codemod's own tests; each side runs on a model of its own with the same parameters.
"""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from harness import on_ranks
from harness.faithful import inputs_for
from harness.files import load_file
from harness.models import Case, build_model
from harness.oracle import gradients_of
from torch import Tensor

from mcore_unpatch.compat import foreign_methods

PAIRS = Path(__file__).parents[2] / "migrate/codemods/golden/wrappers"
Call = Callable[..., Tensor]


def load(name: str, side: str) -> ModuleType:
    return load_file(PAIRS / f"{name}.{side}.py")


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


def _with_images(wrapper: Any, model: Any, call: Call) -> Tensor:
    wrapper.with_images(model, True)
    return call(images=torch.ones(()), boxes=1)


def _by_names(wrapper: Any, model: Any, call: Call) -> Tensor:
    wrapper.scale_head(model, 3.0)
    wrapper.fix_dtype(model)
    wrapper.double(model)
    return call()


def _two(wrapper: Any, model: Any, call: Call) -> Tensor:
    wrapper.squared(model)
    wrapper.halved(model)
    return call()


DRIVERS: dict[str, Callable[[Any, Any, Call], Tensor]] = {
    "begins_a_block": _installed("halve", True),
    "bound_to_the_module": _installed("double"),
    "bound_values": _installed("scaled", 4.0),
    "changes_an_argument": _installed("detach_encoder"),
    "changes_the_output": _installed("scale_embeddings", 3.0),
    "counts_calls": _counts_calls,
    "in_one_expression": _installed("in_double"),
    "keywords_withheld": _with_images,
    "names_alone": _by_names,
    "named_parameter_changed": _installed("requires_gradient"),
    "named_parameter_read": _installed("residual"),
    "of_unknown_type": _installed("add_branch", 0.5),
    "output_and_input": _installed("residual"),
    "parameter_passed_on": _installed("halve"),
    "passed_by_name": _installed("scaled", 0.5),
    "two_named_parameters": _installed("detach"),
    "two_on_one_module": _two,
}
HOOKS = {
    "names_alone": 3,
    "two_on_one_module": 2,
    "of_unknown_type": 2,
}  # else one
SAME_AS_WITHOUT = {"counts_calls", "in_one_expression", "named_parameter_changed"}


def _is_same(name: str, case: Case, inputs: dict[str, Any]) -> bool:
    sides, number = [], {"": 0, "in": 0, "out": HOOKS.get(name, 1)}
    for side, expected in number.items():
        model = build_model(case)
        call = lambda model=model, **more: model(**inputs, **more)  # noqa: E731
        logits = DRIVERS[name](load(name, side), model, call) if side else call()
        factors = torch.randn(logits.shape, generator=torch.Generator().manual_seed(5))
        torch.autograd.backward((logits * factors).sum())
        sides.append({"logits": logits.detach(), **gradients_of(model)})
        parts = list(model.modules())
        if side == "out":
            assert not [one for part in parts for one in foreign_methods(part)], name
        hooks = sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in parts)
        assert hooks == expected, (name, side)
    plain, before, after = sides
    changes = any(not torch.equal(value, plain[key]) for key, value in before.items())
    assert changes is (name not in SAME_AS_WITHOUT), name
    return before.keys() == after.keys() and all(torch.equal(value, after[key]) for key, value in before.items())


@on_ranks
def test_hooks_give_what_the_wrappers_gave(case: Case) -> None:
    inputs = {**inputs_for(case), "labels": None}
    differ = [name for name in DRIVERS if not _is_same(name, case, inputs)]
    assert not differ, f"the hooks do not give what the wrappers gave: {differ}"


def test_every_pair_is_run() -> None:
    assert {path.name.removesuffix(".out.py") for path in PAIRS.glob("*.out.py")} == set(DRIVERS)
