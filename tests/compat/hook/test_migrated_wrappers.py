"""LM-head wrappers before and after `unpatch migrate`: the same hidden states, weight and gradients on real models.

The pairs are those of the codemod's own tests; each side runs on a model of its own with the same parameters.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from harness import run_on_ranks
from harness.faithful import inputs_for
from harness.files import load_file
from harness.models import Case, build_model, start_world
from harness.oracle import gradients_of
from torch import Tensor

from mcore_unpatch.compat import foreign_methods

PAIRS = Path(__file__).parents[2] / "migrate/codemods/golden/lm_head"
# What one side gives: the output while the wrapper is on, the weight it kept, and the output once it is off.
Seen = tuple[Tensor, Tensor | None, Tensor | None]


def load(name: str, side: str) -> ModuleType:
    return load_file(PAIRS / f"{name}.{side}.py")


def bound_method(wrapper: Any, model: Any, call: Callable[[], Tensor]) -> Seen:
    wrapper.skip_projection(model)
    return call(), wrapper.HEAD["weight"], None


def adapter_class(wrapper: Any, model: Any, call: Callable[[], Tensor]) -> Seen:
    holder = wrapper.HiddenStates(model)
    hidden = call()
    holder.remove()
    return hidden, holder.weight, call()


def function_of_the_module(wrapper: Any, model: Any, call: Callable[[], Tensor]) -> Seen:
    wrapper.skip_projection(model)
    return call(), None, None


def toggled_by_a_global(wrapper: Any, model: Any, call: Callable[[], Tensor]) -> Seen:
    wrapper.defer(model)
    wrapper.DEFERRED["on"] = True
    hidden = call()
    wrapper.DEFERRED["on"] = False
    return hidden, None, call()


def toggled_by_an_argument(wrapper: Any, model: Any, call: Callable[[], Tensor]) -> Seen:
    with wrapper.hidden_states_of(model, True) as slot:
        hidden = call()
    with wrapper.hidden_states_of(model, False) as nothing:
        logits = call()
    assert not nothing
    return hidden, slot["weight"], logits


def undone_by_another_function(wrapper: Any, model: Any, call: Callable[[], Tensor]) -> Seen:
    wrapper.patch_head(model)
    wrapper.patch_head(model)
    hidden = call()
    wrapper.unpatch_head(model)
    wrapper.unpatch_head(model)
    return hidden, None, call()


def only_import_goes(wrapper: Any, model: Any, call: Callable[[], Tensor]) -> Seen:
    with contextmanager(wrapper.capture_hidden_states)(model):
        hidden = call()
    return hidden, None, call()


DRIVERS = [
    bound_method,
    adapter_class,
    function_of_the_module,
    toggled_by_a_global,
    toggled_by_an_argument,
    undone_by_another_function,
    only_import_goes,
]


@contextmanager
def same_numbers() -> Iterator[None]:
    state = torch.random.get_rng_state()
    yield
    torch.random.set_rng_state(state)


def _before_and_after(name: str, case: Case) -> None:
    start_world(case)
    driver: Callable[..., Seen] = globals()[name]
    inputs = {**inputs_for(case), "labels": None}
    sides = []
    for side in ("in", "out"):
        model = build_model(case)
        with same_numbers():
            hidden, weight, later = driver(load(name, side), model, lambda model=model: model(**inputs))
        mine = model.shared_embedding_or_output_weight() if case.tied else model.output_layer.weight
        assert weight is None or weight is mine
        assert hidden.shape[-1] == model.config.hidden_size
        factors = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(5))
        torch.autograd.backward((hidden * factors).sum())
        sides.append((hidden.detach(), later, gradients_of(model)))
        if side == "out":
            assert not foreign_methods(model.output_layer)
    (hidden, later, gradients), (new_hidden, new_later, new_gradients) = sides
    assert torch.equal(hidden, new_hidden)
    assert gradients.keys() == new_gradients.keys()
    assert all(torch.equal(gradient, new_gradients[name]) for name, gradient in gradients.items())
    assert (later is None) == (new_later is None)
    assert later is None or new_later is None or torch.equal(later, new_later)


@pytest.mark.parametrize("case", [Case(tied=True), Case(tp=2, sequence_parallel=True, tied=True)], ids=str)
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.__name__)
def test_a_migrated_wrapper_gives_what_it_gave(release: str, driver: Callable[..., Seen], case: Case) -> None:
    run_on_ranks(release, case.ranks, _before_and_after, driver.__name__, case)


def test_every_runnable_pair_is_run() -> None:
    pairs = {path.name.removesuffix(".out.py") for path in PAIRS.glob("*.out.py")}
    # `two_in_one_file` is `function_of_the_module` twice.
    assert pairs - {driver.__name__ for driver in DRIVERS} == {"two_in_one_file"}
