"""A training step over several micro-batches by Megatron's own schedules, overlapped or plain, with veRL's shims."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from harness.attention import CpuAttention
from harness.models import Case, build_config
from harness.oracle import gradients_of
from harness.training import scheduled
from harness.worlds import lay_out
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec, get_gpt_mtp_block_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from torch import Tensor

from mcore_unpatch.compat.verl.model_forward_1f1b_overlap import gptmodel_forward_1f1b_overlap
from mcore_unpatch.compat.verl.model_forward_fused import fused_forward_model_gen

MICRO_BATCHES = 3
_all_to_all = torch.distributed.all_to_all_single


def all_to_all(output: Tensor, tokens: Tensor, **options: Any) -> Any:
    lists = {name: value.tolist() if isinstance(value, Tensor) else value for name, value in options.items()}
    return _all_to_all(output, tokens, **lists)


@contextmanager
def no_streams() -> Iterator[None]:
    """Stand-ins for a CPU: events and streams, which order work that here runs in order anyway, and split sizes as
    lists, which Megatron makes when it brings them from a GPU.
    """
    with (
        mock.patch("torch.cuda.Event"),
        mock.patch("torch.cuda.Stream"),
        mock.patch("torch.cuda.stream", lambda stream: nullcontext()),
        mock.patch.object(torch.Tensor, "record_stream", lambda *_: None),
        mock.patch("torch.distributed.all_to_all_single", all_to_all),
        mock.patch("torch.cuda.nvtx.range_push"),
        mock.patch("torch.cuda.nvtx.range_pop"),
    ):
        yield


def build_moe_model(case: Case) -> Any:
    """Experts over two ranks: a schedule plan frees what it has sent to the other, and with one rank that is all."""
    lay_out(expert_model_parallel_size=2)
    model_parallel_cuda_manual_seed(7, force_reset_rng=True)
    torch.manual_seed(99)
    config = build_config(case)
    config.expert_model_parallel_size = 2
    config.num_moe_experts = 4
    config.moe_token_dispatcher_type = "alltoall"
    config.moe_router_topk = 2
    config.moe_ffn_hidden_size = 2 * case.hidden
    spec = get_gpt_layer_local_spec(num_experts=4)
    spec.submodules.self_attention.submodules.core_attention = CpuAttention
    mtp = get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False) if case.mtp else None
    tied = {"share_embeddings_and_output_weights": case.tied, "position_embedding_type": "rope"}
    return GPTModel(config, spec, case.vocab, 4 * case.sequence, mtp_block_spec=mtp, **tied)


def micro_batches(case: Case) -> list[dict[str, Any]]:
    """Batches padded on the left, each with its own temperature, as veRL's actor has them."""
    generator = torch.Generator().manual_seed(4)
    batches = []
    for number in range(MICRO_BATCHES):
        ids = torch.randint(1, case.vocab, (2, case.sequence), generator=generator)
        real = torch.arange(case.sequence) >= torch.tensor([3 + number, number])[:, None]
        tensors = {
            "input_ids": ids * real,
            "attention_mask": real,
            "labels": ids.roll(-1, -1),
            "labels_mask": real & (torch.arange(case.sequence) < case.sequence - 1),
        }
        batches.append({**tensors, "position_ids": None, "temperature": 0.6 + 0.2 * number, "multi_modal_inputs": {}})
    return batches


def step(model: Any, batches: list[dict[str, Any]], *, overlap: bool, entropy: bool) -> Any:
    """All micro-batches forward and backward: what the loss function saw of each, and every gradient."""
    model.config.overlap_moe_expert_parallel_comm = overlap

    def forward_step(data: Any, model: Any, return_schedule_plan: bool = False) -> Any:
        batch = next(data)
        if return_schedule_plan:
            return gptmodel_forward_1f1b_overlap(model, **batch, calculate_entropy=entropy), _loss
        form = "bshd" if model.config.mtp_num_layers else "thd"
        out = fused_forward_model_gen()(model, **batch, data_format=form, mtp_enable_train=form == "bshd")
        return out, lambda out: _loss(out["log_probs"], out["entropy"] if entropy else None)

    return scheduled(Case(), model, forward_step, batches), gradients_of(model)


def _loss(log_probs: Tensor, entropy: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
    weights = torch.linspace(-1, 1, log_probs.numel(), device=log_probs.device).view_as(log_probs)
    loss = (weights * log_probs).mean()
    if entropy is not None:
        loss = loss + 0.3 * (weights.flip(1) * entropy).mean()
    seen = {"log_probs": log_probs.detach().clone()}
    return loss, seen if entropy is None else seen | {"entropy": entropy.detach().clone()}
