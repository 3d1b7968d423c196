"""Code before and after `unpatch migrate`, on real models: the same values and gradients."""

from typing import Any

import torch
from harness import on_ranks
from harness.faithful import inputs_for
from harness.models import Case, build_model
from harness.oracle import gradients_of
from torch import Tensor

from mcore_unpatch.codemods.catalogue.forward_hooks import ForwardHooks
from mcore_unpatch.compat import foreign_methods


def _found(model: Any, inputs: dict[str, Any]) -> dict[str, Tensor]:
    logits = model(**inputs)
    factors = torch.randn(logits.shape, generator=torch.Generator().manual_seed(5))
    torch.autograd.backward((logits * factors).sum())
    return {"logits": logits.detach(), **gradients_of(model)}


@on_ranks
def test_hooks_give_what_the_wrappers_gave(case: Case) -> None:
    inputs = {**inputs_for(case), "labels": None}
    (example,) = ForwardHooks.examples
    plain, wrapped, hooked = (build_model(case) for _ in range(3))
    for side, model in ((example.before, wrapped), (example.after, hooked)):
        names: dict[str, Any] = {}
        exec(side, names)
        names["add_adapter"](model.decoder, torch.tanh)
    assert [one for part in wrapped.modules() for one in foreign_methods(part)]
    assert not [one for part in hooked.modules() for one in foreign_methods(part)]
    before, after = _found(wrapped, inputs), _found(hooked, inputs)
    assert not torch.equal(before["logits"], _found(plain, inputs)["logits"])
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[key]) for key, value in before.items())
