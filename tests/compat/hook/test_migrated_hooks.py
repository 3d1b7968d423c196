"""Wrappers around `forward` before and after `unpatch migrate`: the same values and gradients on a real model.

The pairs are the codemod's own examples; each side runs on a model of its own with the same parameters.
"""

from collections.abc import Callable
from typing import Any

import torch
from harness import on_ranks
from harness.faithful import inputs_for
from harness.models import Case, build_model
from harness.oracle import gradients_of
from torch import Tensor

from mcore_unpatch.codemods.catalogue.forward_hooks import ForwardHooks
from mcore_unpatch.compat import foreign_methods

# What installs each example on a model, by the name of its function.
INSTALL: dict[str, Callable[[Callable[..., None], Any], None]] = {
    "scale_embeddings": lambda install, model: install(model, 3.0),
    "add_adapter": lambda install, model: install(model.decoder, torch.tanh),
}


def _found(model: Any, inputs: dict[str, Any]) -> dict[str, Tensor]:
    logits = model(**inputs)
    factors = torch.randn(logits.shape, generator=torch.Generator().manual_seed(5))
    torch.autograd.backward((logits * factors).sum())
    return {"logits": logits.detach(), **gradients_of(model)}


@on_ranks
def test_hooks_give_what_the_wrappers_gave(case: Case) -> None:
    inputs = {**inputs_for(case), "labels": None}
    pairs = [(one.before, one.after) for one in ForwardHooks.examples]
    assert sorted(INSTALL) == sorted(name for name in INSTALL for before, _ in pairs if f"def {name}(" in before)
    assert len(pairs) == len(INSTALL)
    for pair in pairs:
        plain, wrapped, hooked = (build_model(case) for _ in range(3))
        for side, model in zip(pair, (wrapped, hooked), strict=True):
            names: dict[str, Any] = {}
            exec(side, names)
            (name,) = INSTALL.keys() & names.keys()
            INSTALL[name](names[name], model)
        assert [one for part in wrapped.modules() for one in foreign_methods(part)]
        assert not [one for part in hooked.modules() for one in foreign_methods(part)]
        before, after = _found(wrapped, inputs), _found(hooked, inputs)
        assert not torch.equal(before["logits"], _found(plain, inputs)["logits"])
        assert before.keys() == after.keys()
        assert all(torch.equal(value, after[key]) for key, value in before.items()), name
