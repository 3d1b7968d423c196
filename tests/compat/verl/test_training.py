"""Twenty steps from one seed three ways: Megatron's default path, veRL's own patch, the shim. The same losses."""

from functools import partial
from typing import Any

import pytest
import torch
from downstream.training import STEPS, TEMPERATURE, from_logits, train
from downstream.verl import verl_files
from harness import run_on_ranks
from harness.models import Case, start_world
from harness.oracle import main_logits
from harness.rounding import assert_same_losses
from torch import Tensor

from mcore_unpatch.compat.verl import mtp_patch
from mcore_unpatch.compat.verl.model_forward_fused import fused_forward_model_gen

CPU = torch.device("cpu")
CALL = ("input_ids", "position_ids", "labels", "loss_mask")


def _call(batch: dict[str, Tensor]) -> dict[str, Any]:
    return {name: batch[name] for name in CALL} | {"attention_mask": None}


def _default(model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return from_logits(main_logits(model, _call(batch)).transpose(0, 1), batch["labels"])


def _fused(model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    out: dict[str, Tensor] = fused_forward_model_gen()(
        model,
        *(batch[name] for name in ("input_ids", "position_ids", "attention_mask", "labels")),
        labels_mask=None,
        temperature=TEMPERATURE,
        data_format="bshd",
    )
    return out


def _three_ways(folder: str, name: str) -> list[list[float]]:
    """The default path, veRL's own file and the shim."""
    case = Case(mtp=1) if name == "mtp_patch" else Case()
    start_world(case)
    with verl_files(folder) as files:
        theirs = files(name)

        def with_mtp(patch: Any, model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
            if "_postprocess" not in vars(model):
                patch(model)
            return from_logits(model(**_call(batch)), batch["labels"])

        def fused(model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
            theirs.patch_fused_forward(model)
            every = torch.ones_like(batch["attention_mask"])
            arguments = [batch[name] for name in ("input_ids", "position_ids", "attention_mask", "labels")]
            out: dict[str, Tensor] = theirs.fused_forward_model_gen()(model, *arguments, every, TEMPERATURE, {})
            return out

        ways: list[Any] = [_default, fused, _fused]
        if case.mtp:
            ways = [_default, *(partial(with_mtp, of.patch_postprocess) for of in (theirs, mtp_patch))]
        return [train(case, way, CPU) for way in ways]


@pytest.mark.parametrize("name", ["mtp_patch", "model_forward_fused"])
def test_the_same_losses_step_by_step(release: str, name: str, verl_091: str) -> None:
    default, patched, shim = run_on_ranks(release, 1, _three_ways, verl_091, name)[0]
    assert len(default) == STEPS
    assert default[0] - default[-1] > 0.01
    assert_same_losses(patched, default)
    assert_same_losses(shim, patched)
