"""Megatron's own labels of -100: their rows cost nothing at the hook, and buffers may be refilled after the call."""

from typing import Any
from unittest import mock

import pytest
import torch
from fused_head.test_ignored_rows import rows_of_the_backend
from harness import on_ranks, on_releases
from harness.models import Case
from harness.oracle import gradients_of
from harness.rounding import assert_close
from torch import Tensor

from mcore_unpatch.compat import Compose, Entropy, HookContext, LogProbs, LogProbsAndEntropy, call_with_processor
from mcore_unpatch.compat.fused_head import plan

CASES = [Case(), Case(tp=2, sequence_parallel=True, tied=True), Case(hybrid=True), Case(packed=True)]


def _loss(values: Any) -> Tensor:
    results = list(values.values()) if hasattr(values, "values") and not isinstance(values, Tensor) else [values]
    draw = torch.Generator().manual_seed(3)
    return sum((x * torch.randn(x.shape, generator=draw)).sum() for x in results)  # type: ignore[return-value]


def _gradients(model: Any, inputs: Any, processor: Any, context: HookContext) -> dict[str, Tensor]:
    model.zero_grad()
    values = call_with_processor(model, processor, context=context, **inputs)
    torch.autograd.backward(_loss(values))
    return dict(gradients_of(model))


@pytest.mark.parametrize(("release", "case"), on_releases(CASES, older=2), ids=str)
@on_ranks
def test_rows_that_megatron_labels_with_nothing_cost_nothing(case: Case, model: Any, inputs: Any) -> None:
    labels: Tensor = inputs["labels"]
    live = torch.arange(labels.numel()).view_as(labels) % 10 == 0
    ignored = inputs | {"labels": labels.masked_fill(~live, -100)}
    for processor in (LogProbsAndEntropy(), Compose(LogProbs(), Entropy())):
        with rows_of_the_backend() as rows:
            found = _gradients(model, ignored, processor, HookContext())
        assert rows == [int(live.sum())] * 2
        masked = _gradients(model, inputs, processor, HookContext(mask=live, labels=labels))
        assert found.keys() == masked.keys()
        assert all(torch.equal(found[name], masked[name]) for name in found)


@on_ranks(Case(), release="0.19.2")
def test_the_models_own_tokens_are_not_waited_for(model: Any, inputs: Any) -> None:
    """Only the last of each sequence has no label, unless there are lengths: then it pays to look how many have one."""
    batch, length = inputs["labels"].shape
    lengths = torch.arange(batch) + length // 2
    processor = LogProbsAndEntropy(shift="next_token")
    for context, computed in (
        (HookContext(), batch * length),
        (HookContext(lengths=lengths), int((lengths - 1).sum())),
    ):
        exact = call_with_processor(model, processor, context=context, **inputs)
        with mock.patch.object(plan, "waiting_is_free", return_value=False), rows_of_the_backend() as rows:
            found = call_with_processor(model, processor, context=context, **inputs)
        assert rows == [computed]
        for ours, truth in zip(found, exact, strict=True):
            assert_close(ours.detach(), truth.detach())
