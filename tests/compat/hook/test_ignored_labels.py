"""Megatron's own labels of -100: their rows cost nothing at the hook, and buffers may be refilled after the call."""

from dataclasses import replace
from functools import reduce
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

from mcore_unpatch.compat import (
    Compose,
    DistillationLoss,
    Entropy,
    HookContext,
    LogProbs,
    LogProbsAndEntropy,
    LogProbsAt,
    TeacherStates,
    TeacherTopK,
    call_with_processor,
)
from mcore_unpatch.compat.fused_head import plan

CASES = [
    Case(),
    Case(tp=2, sequence_parallel=True, tied=True),
    Case(hybrid=True),
    Case(packed=True),
]


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


def _teachers(case: Case, model: Any, inputs: Any) -> dict[str, tuple[Any, HookContext]]:
    shape = inputs["labels"].shape
    draw = torch.Generator().manual_seed(1)
    weight = torch.randn(case.vocab, 12, generator=draw)
    hidden = torch.randn(*shape, 12, generator=draw)
    token_ids = torch.randint(0, case.vocab, (*shape, 3), generator=draw)
    context = HookContext(
        labels=inputs["labels"].clone(),
        mask=torch.randint(0, 2, shape, generator=draw),
        temperature=torch.rand(shape, generator=draw) + 0.5,
    )
    top_k = TeacherTopK(
        torch.arange(3).expand(*shape, 3).clone(), torch.randn(*shape, 3, generator=draw).log_softmax(-1)
    )
    return {
        "log-probs": (Compose(LogProbs(), LogProbsAt()), replace(context, token_ids=token_ids)),
        "keep_mask": (LogProbs(), replace(context, keep_mask=torch.rand(*shape, case.vocab, generator=draw) < 0.5)),
        "states": (DistillationLoss(kind="jsd"), replace(context, teacher=TeacherStates(hidden, weight))),
        "top k": (DistillationLoss(kind="jsd"), replace(context, teacher=top_k)),
    }


PLACES = ["labels", "mask", "temperature", "token_ids", "keep_mask"]
PLACES += [f"teacher.{name}" for name in ("hidden", "weight", "token_ids", "log_probs")]


@pytest.mark.parametrize("kind", ["log-probs", "keep_mask", "states", "top k"])
@pytest.mark.parametrize("case", [Case()], ids=str)
@on_ranks(release="0.19.2")
def test_what_is_refilled_between_forward_and_backward_changes_nothing_or_raises(
    case: Case, model: Any, inputs: Any, kind: str
) -> None:
    processor, context = _teachers(case, model, inputs)[kind]
    truth = _gradients(model, inputs, processor, context)
    refilled = 0
    for place in PLACES:
        processor, context = _teachers(case, model, inputs)[kind]
        tensor = reduce(lambda owner, name: getattr(owner, name, None), place.split("."), context)
        if not isinstance(tensor, Tensor):
            continue
        model.zero_grad()
        values = call_with_processor(model, processor, context=context, **inputs)
        tensor.copy_(~tensor if tensor.dtype == torch.bool else tensor.flip(0) + 1)
        refilled += 1
        try:
            torch.autograd.backward(_loss(values))
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
        else:
            assert all(torch.equal(grad, truth[name]) for name, grad in gradients_of(model).items()), place
    assert refilled >= 4
