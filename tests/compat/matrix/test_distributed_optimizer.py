"""Megatron's distributed optimizer: the same losses, also where new weights are gathered during the forward."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from harness import on_ranks, on_releases
from harness.models import Case, batch_of, build_config, build_model
from harness.rounding import assert_same_losses
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

from mcore_unpatch.compat import TokenLoss, attach

STEPS = 3
CASES = [Case(dp=2), Case(dp=2, tied=True), Case(dp=2, hybrid=True, mtp=1)]


def _losses(case: Case, processor: Any, overlap: bool) -> torch.Tensor:
    model = build_model(case)
    ddp_config = DistributedDataParallelConfig(
        use_distributed_optimizer=True,
        overlap_grad_reduce=overlap,
        overlap_param_gather=overlap,
        bucket_size=1 if overlap else None,  # the head in a bucket of its own, gathered last
    )
    ddp = DistributedDataParallel(build_config(case), ddp_config, model)
    config = OptimizerConfig(
        optimizer="adam", lr=0.01, use_distributed_optimizer=True, overlap_param_gather=overlap, clip_grad=0.0
    )
    optimizer = get_megatron_optimizer(config, [ddp])
    inputs = {**batch_of(case, seed=torch.distributed.get_rank()), "attention_mask": None}
    losses = []
    for _ in range(STEPS):
        ddp.zero_grad_buffer()
        optimizer.zero_grad()
        with attach(ddp, processor) if processor is not None else nullcontext():
            output = ddp(**inputs)
        loss = output.mean()
        torch.autograd.backward(loss)
        ddp.finish_grad_sync()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlapped"])
@pytest.mark.parametrize(
    ("release", "case"),
    on_releases([Case(dp=2), Case(dp=2, tied=True), Case(dp=2, hybrid=True, mtp=1)], older=1),
    ids=str,
)
@on_ranks
def test_the_distributed_optimizer_steps_the_same(case: Case, overlap: bool) -> None:
    expected = _losses(case, None, overlap)
    assert_same_losses(_losses(case, TokenLoss(), overlap).tolist(), expected.tolist())
    assert expected[0] - expected[-1] > 1e-3
