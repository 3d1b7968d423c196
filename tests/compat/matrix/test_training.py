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

from mcore_unpatch.compat import LogProbs, LogProbsAndEntropy, TokenLoss, attach, call_with_processor

STEPS = 8
CASES = [Case(tied=True), Case(mtp=1, mup=True), Case(tp=2, mtp=1), Case(hybrid=True, mtp=1)]


def _inputs(case: Case, step: int) -> dict[str, Any]:
    return {**batch_of(case, seed=step), "attention_mask": None}


def _trained(case: Case, loss_of_step: Callable[[Any, int], Tensor]) -> list[float]:
    """The loss of each step; `loss_of_step` leaves the gradients on the model."""
    model = build_model(case)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        losses.append(loss_of_step(model, step).item())
        optimizer.step()
    return losses


def _same(ours: list[float], theirs: list[float]) -> None:
    assert abs(ours[0] - ours[-1]) > 0.005, f"nothing was learnt: {ours}"
    assert_same_losses(ours, theirs)


@pytest.mark.parametrize(("release", "case"), on_releases(CASES, older=2), ids=str)
@on_ranks
def test_cross_entropy_learns_the_same_in_the_hook(case: Case) -> None:

    def step_of(model: Any, step: int) -> Tensor:
        inputs = _inputs(case, 0)
        mask = inputs["loss_mask"]
        loss: Tensor = (model(**inputs) * mask).sum() / mask.sum()
        torch.autograd.backward(loss)
        return loss.detach()

    def in_the_hook(model: Any, step: int) -> Tensor:
        with attach(model, TokenLoss(use_loss_mask=True)):
            return step_of(model, step)

    _same(_trained(case, in_the_hook), _trained(case, step_of))


@pytest.mark.parametrize(("release", "case"), on_releases(CASES, older=2), ids=str)
@on_ranks
def test_a_policy_loss_learns_the_same_in_the_hook(case: Case) -> None:
    """A clipped ratio to old log-probs, a KL to a reference, and an entropy bonus, on masked tokens."""
    inputs = _inputs(case, 0)
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

    def in_the_hook(model: Any, step: int) -> Tensor:
        out = call_with_processor(model, LogProbsAndEntropy(use_loss_mask=True), **inputs)
        loss = loss_of(out.log_probs, out.entropy)
        torch.autograd.backward(loss)
        return loss.detach()

    def default(model: Any, step: int) -> Tensor:
        return default_path(model, inputs, inputs["labels"], 1.0, loss_of).loss

    _same(_trained(case, in_the_hook), _trained(case, default))
