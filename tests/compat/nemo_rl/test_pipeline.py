"""Pipeline stages: the flag, or the hook's arguments, is passed to all of them, and only the last one has log-probs."""

from typing import Any

import pytest
import torch
from downstream.nemo_rl_calls import FLAG, with_the_flag
from harness import on_ranks
from harness.models import Case, batch_of
from harness.oracle import gradients_of
from harness.rounding import assert_agree, assert_close
from harness.training import scheduled
from megatron.core import parallel_state
from torch import Tensor

from mcore_unpatch.compat.nemo_rl import linear_ce_fusion_kwargs


def run(case: Case, model: Any, flagged: bool) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Losses and gradients of Megatron's schedule, with the flag or from Megatron's own output stage."""

    def forward_step(data: Any, chunk: Any) -> Any:
        tokens, positions = next(data)

        def finish(output: Tensor) -> Any:
            assert output.shape == (case.batch, case.sequence - flagged)
            log_probs = output if flagged else -output[:, :-1]
            weights = torch.randn(log_probs.shape, generator=torch.Generator().manual_seed(3))
            loss = (log_probs * weights).mean()
            return loss, {"loss": loss.detach()}

        if flagged:
            fusion = linear_ce_fusion_kwargs(chunk) if case.mtp else FLAG  # which leaves out MTP
            return chunk(tokens, positions, None, labels=tokens, **fusion), finish
        mask = torch.ones_like(tokens).index_fill(1, torch.tensor([case.sequence - 1]), 0)
        return chunk(tokens, positions, None, labels=tokens.roll(-1, 1), loss_mask=mask), finish

    batches = [batch_of(case, seed) for seed in range(3)]
    calls = [(batch["input_ids"], batch["position_ids"]) for batch in batches]
    return [result["loss"] for result in scheduled(case, model, forward_step, calls)], gradients_of(model)


@pytest.mark.parametrize("case", [Case(pp=2), Case(pp=2, tied=True, mtp=1)], ids=str)
@on_ranks
def test_losses_and_gradients_are_those_of_the_default_path(case: Case) -> None:
    model = with_the_flag(case)
    losses, gradients = run(case, model, flagged=True)
    expected_losses, expected = run(case, model, flagged=False)
    assert len(losses) == (3 if parallel_state.is_pipeline_last_stage() else 0)
    for loss, expected_loss in zip(losses, expected_losses, strict=True):
        assert_close(loss, expected_loss)
    assert_agree(gradients, expected)
    assert any(gradient.abs().max() > 1e-4 for gradient in expected.values())
