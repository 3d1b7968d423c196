"""Twenty steps from one seed three ways: Megatron's default path, veRL's own patch, the shim. The same losses."""

from typing import Any

import torch
from downstream.training import STEPS, TEMPERATURE, from_logits, train
from downstream.verl import verl_files
from harness import run_on_ranks
from harness.models import Case, start_world
from harness.oracle import main_logits
from harness.rounding import assert_same_losses
from torch import Tensor

from mcore_unpatch.compat.verl.model_forward_fused import fused_forward_model_gen
from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess

CPU = torch.device("cpu")
CALL = ("input_ids", "position_ids", "labels", "loss_mask")


def _call(batch: dict[str, Tensor]) -> dict[str, Any]:
    return {name: batch[name] for name in CALL} | {"attention_mask": None}


def _default(model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return from_logits(main_logits(model, _call(batch)).transpose(0, 1), batch["labels"])


def _patched(model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return from_logits(model(**_call(batch)), batch["labels"])


def _fused(model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    out: dict[str, Tensor] = fused_forward_model_gen()(
        model,
        *(batch[name] for name in ("input_ids", "position_ids", "attention_mask", "labels")),
        labels_mask=None,
        temperature=TEMPERATURE,
        data_format="bshd",
    )
    return out


def _three_ways(folder: str) -> list[list[float]]:
    case = Case(mtp=1)
    start_world(case)
    default = train(case, _default, CPU)
    with verl_files(folder) as files:
        theirs = files("mtp_patch")

        def legacy(model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
            if "_postprocess" not in vars(model):
                theirs.patch_postprocess(model)
            return _patched(model, batch)

        patched = train(case, legacy, CPU)

    def shim(model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        patch_postprocess(model)
        return _patched(model, batch)

    return [default, patched, train(case, shim, CPU)]


def test_with_mtp_the_same_losses_step_by_step(release: str, verl_091: str) -> None:
    default, patched, shim = run_on_ranks(release, 1, _three_ways, verl_091)[0]
    assert len(default) == STEPS
    assert default[0] - default[-1] > 0.01
    assert_same_losses(patched, default)
    assert_same_losses(shim, patched)


def _fused_ways(folder: str) -> list[list[float]]:
    case = Case()
    start_world(case)
    with verl_files(folder) as files:
        theirs = files("model_forward_fused")
        forward = theirs.fused_forward_model_gen()

        def legacy(model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
            theirs.patch_fused_forward(model)
            every = torch.ones_like(batch["attention_mask"])
            arguments = [batch[name] for name in ("input_ids", "position_ids", "attention_mask", "labels")]
            out: dict[str, Tensor] = forward(model, *arguments, every, TEMPERATURE, {})
            return out

        patched = train(case, legacy, CPU)
    return [train(case, _default, CPU), patched, train(case, _fused, CPU)]


def test_fused_the_same_losses_step_by_step(release: str, verl_091: str) -> None:
    default, patched, shim = run_on_ranks(release, 1, _fused_ways, verl_091)[0]
    assert default[0] - default[-1] > 0.01
    assert_same_losses(patched, default)
    assert_same_losses(shim, patched)
