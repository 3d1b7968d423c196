"""Megatron's own combined 1F1B schedule with plans of the shim, several micro-batches in flight, against plain forwards.

On a CPU and in float32; the same in bf16 on a GPU is in `benchmarks/verl_gpu_proof.py`.
Stand-ins, in these tests alone: CUDA events and streams, which order work that here runs in order anyway.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import pytest
import torch
from harness import run_on_ranks
from harness.attention import CpuAttention
from harness.models import Case, build_config, build_model, start_world
from harness.oracle import gradients_of
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec, get_gpt_mtp_block_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.pipeline_parallel import get_forward_backward_func
from torch import Tensor

from mcore_unpatch.compat.hook.legacy import LegacyPatchError
from mcore_unpatch.compat.verl.model_forward_1f1b_overlap import gptmodel_forward_1f1b_overlap
from mcore_unpatch.compat.verl.model_forward_fused import fused_forward_model_gen
from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess

MICRO_BATCHES = 3


@contextmanager
def no_streams() -> Iterator[None]:
    with (
        mock.patch("torch.cuda.Event"),
        mock.patch("torch.cuda.Stream"),
        mock.patch("torch.cuda.stream", lambda stream: nullcontext()),
        mock.patch.object(torch.Tensor, "record_stream", lambda *_: None),
        mock.patch("torch.cuda.nvtx.range_push"),
        mock.patch("torch.cuda.nvtx.range_pop"),
    ):
        yield


def build_moe_model(case: Case) -> Any:
    """Layers with experts: in a schedule plan Megatron's last norm belongs to the experts' combine."""
    torch.manual_seed(99)
    config = build_config(case)
    config.num_moe_experts = 4
    config.moe_token_dispatcher_type = "alltoall"
    config.moe_router_topk = 2
    config.moe_ffn_hidden_size = 2 * case.hidden
    spec = get_gpt_layer_local_spec(num_experts=4)
    spec.submodules.self_attention.submodules.core_attention = CpuAttention
    mtp = get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False) if case.mtp else None
    tied = {"share_embeddings_and_output_weights": case.tied, "position_embedding_type": "rope"}
    return GPTModel(config, spec, case.vocab, 4 * case.sequence, mtp_block_spec=mtp, **tied)


def _batches(case: Case) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(4)
    batches = []
    for number in range(MICRO_BATCHES):
        ids = torch.randint(1, case.vocab, (2, case.sequence), generator=generator)
        real = torch.arange(case.sequence) >= torch.tensor([3 + number, number])[:, None]
        batches.append(
            {
                "input_ids": ids * real,
                "position_ids": None,
                "attention_mask": real,
                "labels": ids.roll(-1, -1),
                "labels_mask": real & (torch.arange(case.sequence) < case.sequence - 1),
                "temperature": 0.6 + 0.2 * number,
                "multi_modal_inputs": {},
            }
        )
    return batches


def _loss(log_probs: Tensor, entropy: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
    weights = torch.linspace(-1, 1, log_probs.numel()).view_as(log_probs)
    loss = (weights * log_probs).mean()
    if entropy is not None:
        loss = loss + 0.3 * (weights.flip(1) * entropy).mean()
    seen = {"log_probs": log_probs.detach().clone()}
    return loss, seen if entropy is None else seen | {"entropy": entropy.detach().clone()}


def _step(model: Any, batches: list[dict[str, Any]], overlap: bool, entropy: bool) -> Any:
    """All micro-batches forward and backward, by Megatron's schedule."""
    model.zero_grad()
    model.config.overlap_moe_expert_parallel_comm = overlap

    def forward_step(data: Any, model: Any, return_schedule_plan: bool = False) -> Any:
        batch = next(data)
        if return_schedule_plan:
            return gptmodel_forward_1f1b_overlap(model, **batch, calculate_entropy=entropy), _loss
        form = "bshd" if model.config.mtp_num_layers else "thd"
        out = fused_forward_model_gen()(model, **batch, data_format=form, mtp_enable_train=form == "bshd")
        return out, lambda out: _loss(out["log_probs"], out["entropy"] if entropy else None)

    seen = get_forward_backward_func()(
        forward_step_func=forward_step,
        data_iterator=iter(batches),
        model=[model],
        num_microbatches=len(batches),
        seq_length=1,
        micro_batch_size=1,
        forward_only=False,
    )
    return seen, gradients_of(model)


def _overlapped(case: Case, entropy: bool) -> None:
    start_world(case)
    with no_streams():
        model, batches = build_moe_model(case), _batches(case)
        plain, expected = _step(model, batches, overlap=False, entropy=entropy)
        seen, gradients = _step(model, batches, overlap=True, entropy=entropy)
    assert len(seen) == MICRO_BATCHES
    for mine, theirs in zip(seen, plain, strict=True):
        assert mine.keys() == theirs.keys()
        for name, value in theirs.items():
            assert torch.allclose(mine[name], value, atol=1e-5), name
    for name, gradient in expected.items():
        assert torch.allclose(gradients[name], gradient, atol=1e-6), name
    assert any(gradient.abs().max() > 1e-4 for gradient in expected.values())
    assert not set(vars(model)) & {"forward", "_postprocess"}


@pytest.mark.parametrize("entropy", [False, True], ids=["log-probs", "and entropy"])
@pytest.mark.parametrize("case", [Case(), Case(tied=True), Case(mtp=1)], ids=str)
def test_the_combined_schedule_gives_what_plain_forwards_give(release: str, case: Case, entropy: bool) -> None:
    run_on_ranks(release, case.ranks, _overlapped, case, entropy)


def _refusals() -> None:
    case = Case(mtp=1)
    start_world(case)
    model, batch = build_model(case), _batches(case)[0]
    with pytest.raises(NotImplementedError, match="logits_processor"):
        gptmodel_forward_1f1b_overlap(model, **batch, logits_processor=print)
    with pytest.raises(ValueError, match="make up labels for the MTP loss"):
        gptmodel_forward_1f1b_overlap(model, **batch | {"labels": None})
    with pytest.raises(NotImplementedError, match="multi_modal_inputs"):
        gptmodel_forward_1f1b_overlap(model, **batch | {"multi_modal_inputs": {"pixel_values": torch.ones(1)}})
    patch_postprocess(model, mtp_updates_lm_head=False)
    with pytest.raises(NotImplementedError, match="does not reach into a schedule plan"):
        gptmodel_forward_1f1b_overlap(model, **batch)
    model._postprocess = _refusals
    with pytest.raises(LegacyPatchError, match="_refusals"):
        gptmodel_forward_1f1b_overlap(model, **batch)


def test_what_a_plan_cannot_do_is_said(release: str) -> None:
    run_on_ranks(release, 1, _refusals)
