"""Pipeline parallelism: Megatron's own schedule with the loss from the hook, on the last stage alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.models import Case, batch_of, equal_pair
from harness.oracle import gradients_of
from harness.rounding import assert_agree, assert_close
from harness.training import scheduled
from torch import Tensor

from mcore_unpatch.compat import LogProbsAndEntropy, attach, gpt_parameter_names

MICRO_BATCHES = 4


def _run_schedule(case: Case, model: Any, loss_of: Callable[[Any, Tensor], Tensor], forward_only: bool = False) -> Any:
    """What Megatron's schedule gives for `MICRO_BATCHES` micro-batches: the losses, on the last stage."""

    def forward_step(micro_batches: Any, chunk: Any) -> Any:
        inputs = next(micro_batches)

        def finish(output: Any) -> Any:
            loss = loss_of(output, inputs["loss_mask"])
            return loss, {"loss": loss.detach()}

        return chunk(**inputs, attention_mask=None), finish

    batches = [batch_of(case, seed=number) for number in range(MICRO_BATCHES)]
    return [result["loss"] for result in scheduled(case, model, forward_step, batches, forward_only)]


CASES = [
    Case(pp=2),
    Case(pp=2, tied=True, mtp=1),
    Case(pp=2, tp=2, sequence_parallel=True),
    Case(pp=2, hybrid=True, mtp=1),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@on_ranks
def test_the_schedule_gives_the_same_losses_and_gradients(case: Case, model: Any) -> None:
    def from_default(output: Tensor, mask: Tensor) -> Tensor:
        loss: Tensor = (output * mask).sum() / mask.sum()
        return loss

    def from_hook(output: Any, mask: Tensor) -> Tensor:
        loss: Tensor = from_default(-output.log_probs, mask) + 0 * output.entropy.sum()
        return loss

    theirs = _run_schedule(case, model, from_default)
    expected = gradients_of(model)
    with attach(model, LogProbsAndEntropy()):
        ours = _run_schedule(case, model, from_hook)
        gradients = gradients_of(model)
        alone = _run_schedule(case, model, from_hook, forward_only=True)
    for found in (ours, alone):
        for mine, other in zip(found, theirs, strict=True):
            assert_close(mine, other)
    assert_agree(gradients, expected)
    assert any(gradient.abs().max() > 0 for gradient in expected.values())


@pytest.mark.parametrize("case", [Case(pp=2, tied=True, mtp=1), Case(pp=2, moe=True), Case(pp=2, tp=2)], ids=str)
@on_ranks(release="0.19.2")
def test_a_hybrid_model_gives_the_bits_of_a_gptmodel(case: Case) -> None:
    hybrid, gpt = equal_pair(case)
    found = []
    for model in (hybrid, gpt):
        with attach(model, LogProbsAndEntropy()):
            losses = _run_schedule(case, model, lambda out, mask: ((out.log_probs + out.entropy) * mask).sum())
        found.append((losses, gradients_of(model)))
    (losses, gradients), (of_gpt, expected) = found
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(losses, of_gpt, strict=True))
    names = gpt_parameter_names(hybrid)
    assert {names[name] for name in gradients} == expected.keys()
    assert all(torch.equal(gradient, expected[names[name]]) for name, gradient in gradients.items())
