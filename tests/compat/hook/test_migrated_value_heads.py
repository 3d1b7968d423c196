"""Replaced output layers before and after `unpatch migrate`: the same values, gradients and checkpoint names.

The pairs are those of the codemod's own tests; each side builds a real model of its own from the same seed.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.files import load_file
from harness.models import Case, batch_of, block_of, build_config
from harness.oracle import gradients_of

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
