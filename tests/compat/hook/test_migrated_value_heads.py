"""Code before and after `unpatch migrate`, on real models: the same values, gradients and checkpoint names.

The pairs are the codemods' own; each side has a model of its own with the same parameters.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.faithful import inputs_for
from harness.files import load_file
from harness.models import Case, batch_of, block_of, build_config, build_model
from harness.oracle import gradients_of
from torch import Tensor

from mcore_unpatch.codemods.catalogue.forward_hooks import ForwardHooks
from mcore_unpatch.compat import foreign_methods

PAIRS = Path(__file__).parents[2] / "migrate/codemods/golden/value_head"
NAMES = sorted(
    path.name.removesuffix(".out.py") for path in PAIRS.glob("*.out.py") if "def model_provider" in path.read_text()
)


def _critic(name: str, side: str) -> Any:
    module: Any = load_file(PAIRS / f"{name}.{side}.py")
    torch.manual_seed(11)
    config = build_config(Case())
    return module.model_provider(config, block_of(config.num_layers))


@pytest.mark.parametrize("name", NAMES)
@on_ranks
def test_a_migrated_value_head_gives_what_the_replaced_layer_gave(name: str) -> None:
    call = {key: value for key, value in batch_of(Case()).items() if key in {"input_ids", "position_ids"}}
    sides = []
    for side in ("in", "out"):
        model = _critic(name, side)
        values = model(**call, attention_mask=None)
        assert values.shape == (*call["input_ids"].shape, 1)
        torch.autograd.backward((values * torch.linspace(-1, 1, values.numel()).view_as(values)).sum())
        gradients = gradients_of(model)
        keys = {key for key in model.sharded_state_dict() if not key.endswith("_extra_state")}
        sides.append((values.detach(), gradients, keys))
        if side == "out":
            assert model.output_layer.weight.shape[0] == 1
            assert not foreign_methods(model)
    (values, gradients, keys), (new_values, new_gradients, new_keys) = sides
    assert torch.equal(values, new_values)
    assert gradients.keys() == new_gradients.keys()
    assert all(torch.equal(gradient, new_gradients[key]) for key, gradient in gradients.items())
    assert any("output_layer" in key and value.abs().sum() > 0 for key, value in gradients.items())
    assert keys == new_keys


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
