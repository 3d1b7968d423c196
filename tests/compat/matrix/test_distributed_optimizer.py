"""Megatron's distributed optimizer: the same losses, also where new weights are gathered during the forward."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from harness import on_ranks, on_releases
from harness.models import Case, batch_of
from harness.rounding import assert_same_losses
from harness.training import under_the_optimizer

from mcore_unpatch.compat import TokenLoss, attach

CASES = [Case(dp=2), Case(dp=2, tied=True), Case(dp=2, hybrid=True, mtp=1)]


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlapped"])
@pytest.mark.parametrize(("release", "case"), on_releases(CASES, older=1), ids=str)
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
