"""AdamW steps with the loss computed in the hook and on the default path, from the same seed: the same losses."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import on_ranks, on_releases
from harness.models import Case, batch_of, build_model
from harness.oracle import default_path
from harness.rounding import assert_same_losses
from torch import Tensor

from mcore_unpatch.compat import LogProbs, LogProbsAndEntropy, call_with_processor

STEPS = 8
CASES = [Case(tied=True), Case(mtp=1, mup=True), Case(tp=2, mtp=1), Case(hybrid=True, mtp=1)]


@pytest.mark.parametrize(("release", "case"), on_releases(CASES, older=2), ids=str)
@on_ranks
def test_a_policy_loss_learns_the_same_in_the_hook(case: Case) -> None:
    """A clipped ratio to old log-probs, a KL to a reference, and an entropy bonus, on masked tokens."""
    inputs: dict[str, Any] = {**batch_of(case), "attention_mask": None}
    with torch.no_grad():
        old = call_with_processor(build_model(case), LogProbs(), **inputs)
    generator = torch.Generator().manual_seed(11)
    reference = old + 0.1 * torch.randn(old.shape, generator=generator)
    advantage = torch.randn(old.shape[0], 1, generator=generator)
    mask = inputs["loss_mask"]

    def loss_of(log_probs: Tensor, entropy: Tensor) -> Tensor:
        ratio = (log_probs - old).exp()
        surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        gap = reference - log_probs
        objective = surrogate - 0.05 * (gap.exp() - gap - 1) + 0.01 * entropy
        loss: Tensor = -(objective * mask).sum() / mask.sum()
        return loss

    def trained(step: Callable[[Any], Tensor]) -> list[float]:
        """The loss of each step, which leaves the gradients on the model."""
        model = build_model(case)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            losses.append(step(model).item())
            optimizer.step()
        return losses

    def in_the_hook(model: Any) -> Tensor:
        out = call_with_processor(model, LogProbsAndEntropy(use_loss_mask=True), **inputs)
        loss = loss_of(out.log_probs, out.entropy)
        torch.autograd.backward(loss)
        return loss.detach()

    theirs = trained(lambda model: default_path(model, inputs, inputs["labels"], 1.0, loss_of).loss)
    assert abs(theirs[0] - theirs[-1]) > 0.005, f"nothing was learnt: {theirs}"
    assert_same_losses(trained(in_the_hook), theirs)
