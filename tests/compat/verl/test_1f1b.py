"""Megatron's own combined 1F1B schedule with plans of the shim, several micro-batches in flight, and plain forwards.

On a CPU and in float32; the same in bf16 on a GPU is in `benchmarks/verl_gpu_proof.py`.
"""

import pytest
import torch
from downstream.overlap import MICRO_BATCHES, build_moe_model, micro_batches, no_streams, step
from downstream.verl import verl_files
from harness import on_ranks, run_on_ranks
from harness.models import Case, build_model, start_world
from harness.rounding import assert_agree
from megatron.core.models.common.model_chunk_schedule_plan import TransformerModelChunkSchedulePlan

from mcore_unpatch.compat.hook.call import LegacyPatchError
from mcore_unpatch.compat.verl.model_forward_1f1b_overlap import gptmodel_forward_1f1b_overlap
from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess


@pytest.mark.parametrize("entropy", [False, True], ids=["log-probs", "and entropy"])
@pytest.mark.parametrize("case", [Case(dp=2), Case(dp=2, tied=True), Case(dp=2, mtp=1)], ids=str)
@on_ranks
def test_the_combined_schedule_gives_what_plain_forwards_give(case: Case, entropy: bool) -> None:
    with no_streams():
        model, batches = build_moe_model(case), micro_batches(case)
        plain, expected = step(model, batches, overlap=False, entropy=entropy)
        seen, gradients = step(model, batches, overlap=True, entropy=entropy)
    assert len(seen) == MICRO_BATCHES
    for mine, theirs in zip(seen, plain, strict=True):
        assert_agree(mine, theirs)
    assert_agree(gradients, expected)
    assert any(gradient.abs().max() > 1e-4 for gradient in expected.values())
    assert not set(vars(model)) & {"forward", "_postprocess"}


def _refusals() -> None:
    case = Case(mtp=1)
    start_world(case)
    model, batch = build_model(case), micro_batches(case)[0]
    with pytest.raises(NotImplementedError, match="logits_processor"):
        gptmodel_forward_1f1b_overlap(model, **batch, logits_processor=print)
    with pytest.raises(ValueError, match="make up labels for the MTP loss"):
        gptmodel_forward_1f1b_overlap(model, **batch | {"labels": None})
    with pytest.raises(NotImplementedError, match="multi_modal_inputs"):
        gptmodel_forward_1f1b_overlap(model, **batch | {"multi_modal_inputs": {"pixel_values": torch.ones(1)}})
    patch_postprocess(model, mtp_updates_lm_head=False)
    with pytest.raises(NotImplementedError, match="has no effect in a schedule plan"):
        gptmodel_forward_1f1b_overlap(model, **batch)
    model._postprocess = _refusals
    with pytest.raises(LegacyPatchError, match="_refusals"):
        gptmodel_forward_1f1b_overlap(model, **batch)


def test_what_a_plan_cannot_do_is_said(release: str) -> None:
    run_on_ranks(release, 1, _refusals)


@on_ranks(2)
def test_the_original_stays_on_the_model_and_breaks_on_this_megatron(verl_091: str) -> None:
    with no_streams():
        model = build_moe_model(Case())
        batch = micro_batches(Case())[0] | {"multi_modal_inputs": None}
        with verl_files(verl_091) as files:
            plan = files("model_forward_1f1b_overlap").gptmodel_forward_1f1b_overlap(model, **batch)
        assert "_postprocess" in vars(model)
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            TransformerModelChunkSchedulePlan.run(plan, None)
