"""Megatron's own combined 1F1B schedule with plans of the shim, several micro-batches in flight, and plain forwards.

On a CPU and in float32; the same in bf16 on a GPU is in `benchmarks/verl_gpu_proof.py`.
"""

from typing import Any

import pytest
import torch
from downstream.overlap import MICRO_BATCHES, build_moe_model, micro_batches, no_streams, step
from harness import on_ranks
from harness.models import Case
from harness.rounding import assert_agree, assert_close
from megatron.core.models.common.model_chunk_schedule_plan import TransformerModelChunkSchedulePlan

from mcore_unpatch.compat.hook.call import LegacyPatchError
from mcore_unpatch.compat.verl.model_forward_1f1b_overlap import gptmodel_forward_1f1b_overlap
from mcore_unpatch.compat.verl.model_forward_fused import fused_forward_model_gen
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


@on_ranks(Case(dp=2), release="0.19.2")
def test_one_plan_without_labels_or_their_mask(case: Case) -> None:
    """Logits, or the log-probs of all that is real."""
    with no_streams():
        model, batch = build_moe_model(case), micro_batches(case)[0] | {"labels_mask": None}
        del batch["multi_modal_inputs"]
        (log_probs,) = TransformerModelChunkSchedulePlan.run(gptmodel_forward_1f1b_overlap(model, **batch), None)
        assert_close(log_probs.detach(), fused_forward_model_gen()(model, **batch)["log_probs"].detach())
        assert torch.equal(log_probs != 0, batch["attention_mask"])
        batch = {name: batch[name] for name in ("input_ids", "position_ids", "attention_mask")}
        batch["position_ids"] = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0) * 2
        (logits,) = TransformerModelChunkSchedulePlan.run(gptmodel_forward_1f1b_overlap(model, **batch), None)
        assert_close(logits.detach(), fused_forward_model_gen()(model, **batch).detach())


@on_ranks(Case(mtp=1))
def test_what_a_plan_cannot_do_is_said(case: Case, model: Any) -> None:
    batch = micro_batches(case)[0]

    def fails(kind: type[Exception], said: str, **other: Any) -> None:
        with pytest.raises(kind, match=said):
            gptmodel_forward_1f1b_overlap(model, **batch | other)

    fails(NotImplementedError, "logits_processor", logits_processor=print)
    fails(ValueError, "make up labels for the MTP loss", labels=None)
    fails(NotImplementedError, "multi_modal_inputs", multi_modal_inputs={"pixel_values": torch.ones(1)})
    patch_postprocess(model, mtp_updates_lm_head=False)
    fails(NotImplementedError, "has no effect in a schedule plan")
    model._postprocess = micro_batches
    fails(LegacyPatchError, "micro_batches")
