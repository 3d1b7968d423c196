"""Megatron's DDP and its distributed optimizer: the same gradients in `main_grad`, the same losses step by step."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from harness import on_ranks, on_releases
from harness.models import Case, batch_of, build_config
from harness.rounding import assert_agree, assert_same_losses
from harness.training import under_the_optimizer
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig

from mcore_unpatch.compat import TokenLoss, attach

MICRO_BATCHES = 2


def _main_gradients(ddp: Any, case: Case, processor: Any) -> dict[str, torch.Tensor]:
    """`main_grad` of every parameter after micro-batches of different tokens on each rank, reduced by DDP."""
    ddp.zero_grad_buffer()
    rank = torch.distributed.get_rank()
    for number in range(MICRO_BATCHES):
        inputs = {**batch_of(case, seed=10 * rank + number), "attention_mask": None}
        if processor is None:
            loss = ddp(**inputs)
        else:
            with attach(ddp, processor):
                loss = ddp(**inputs)
        (loss * inputs["loss_mask"]).sum().backward()
    ddp.finish_grad_sync()
    return {name: p.main_grad.clone() for name, p in ddp.module.named_parameters()}


CASES = [Case(dp=2), Case(dp=2, tied=True), Case(dp=2, hybrid=True), Case(dp=2, tp=2), Case(dp=2, dtype=torch.bfloat16)]


@pytest.mark.parametrize("fused", [False, True], ids=["through .grad", "fused into main_grad"])
@pytest.mark.parametrize("case", CASES, ids=str)
@on_ranks
def test_main_grad_is_what_the_default_path_leaves_there(case: Case, model: Any, fused: bool) -> None:
    ddp_config = DistributedDataParallelConfig(grad_reduce_in_fp32=True, overlap_grad_reduce=False)
    ddp = DistributedDataParallel(build_config(case), ddp_config, model)
    expected = _main_gradients(ddp, case, None)
    # Fusing needs a CUDA extension inside ColumnParallelLinear, and so its flag is set on the layer after it was built;
    # the hook reads the flag and never calls the layer.
    model.output_layer.gradient_accumulation_fusion = fused
    ours = _main_gradients(ddp, case, TokenLoss())
    head = model.shared_embedding_or_output_weight() if case.tied else model.output_layer.weight
    assert head.grad_added_to_main_grad == fused
    assert_agree(ours, expected, case.dtype)
    assert all(gradient.abs().max() > 0 for name, gradient in expected.items() if "weight" in name)


TRAINED = [Case(dp=2), Case(dp=2, tied=True), Case(dp=2, hybrid=True, mtp=1)]


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlapped"])
@pytest.mark.parametrize(("release", "case"), on_releases(TRAINED, older=1), ids=str)
@on_ranks
def test_the_distributed_optimizer_steps_the_same(case: Case, overlap: bool) -> None:
    inputs = {**batch_of(case, seed=torch.distributed.get_rank()), "attention_mask": None}

    def losses(processor: Any) -> list[float]:
        def loss_of(ddp: Any) -> torch.Tensor:
            with attach(ddp, processor) if processor is not None else nullcontext():
                loss: torch.Tensor = ddp(**inputs).mean()
            return loss

        found: list[float] = under_the_optimizer(case, loss_of, overlap=overlap).tolist()
        return found

    expected = losses(None)
    assert_same_losses(losses(TokenLoss()), expected)
    assert expected[0] - expected[-1] > 1e-3
