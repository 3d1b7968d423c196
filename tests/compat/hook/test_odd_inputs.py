"""Inputs of every kind that people pass: the same log-probs, entropy and gradients as Megatron's default path."""

from typing import Any

import pytest
import torch
from harness import on_ranks, on_releases
from harness.faithful import TEMPERATURE, in_float64, weighted
from harness.models import Case
from harness.oracle import Result, assert_no_worse, default_path, gradients_of
from torch import Tensor

from mcore_unpatch.compat import LogProbsAndEntropy, call_with_processor


def _agrees(
    case: Case,
    model: Any,
    inputs: Any,
    mask_dtype: torch.dtype = torch.bool,
    label_dtype: torch.dtype = torch.int64,
    frozen: bool = False,
) -> None:
    """Only the rows of the mask count, in both paths."""
    exact = in_float64(case, model)
    for one in (model, exact):
        head = one.shared_embedding_or_output_weight() if case.tied else one.output_layer.weight
        head.requires_grad_(not frozen)
    mask = inputs["loss_mask"]

    def loss_of(log_probs: Tensor, entropy: Tensor) -> Tensor:
        return weighted(log_probs * mask, entropy * mask)

    def masked(result: Result) -> Result:
        return Result(result.log_probs * mask, result.entropy * mask, result.loss, result.gradients)

    truth = default_path(exact, inputs, inputs["labels"], TEMPERATURE, loss_of)
    default = default_path(model, inputs, inputs["labels"], TEMPERATURE, loss_of)
    model.zero_grad()
    processor = LogProbsAndEntropy(temperature=TEMPERATURE)
    context = {"mask": (3 * mask).to(mask_dtype), "labels": inputs["labels"].to(label_dtype)}
    out = call_with_processor(model, processor, context=context, **inputs)
    loss = weighted(out.log_probs, out.entropy)
    torch.autograd.backward(loss)
    ours = Result(out.log_probs.detach(), out.entropy.detach(), loss.detach(), gradients_of(model))
    assert_no_worse(ours, masked(default), masked(truth), case.dtype)
    assert (ours.log_probs[mask == 0] == 0).all()
    assert 0 < mask.mean() < 1


CASES = [
    Case(),
    Case(tied=True, mtp=2),
    Case(tp=2, sequence_parallel=True, packed=True),
    Case(hybrid=True, tied=True, mtp=1),
    Case(tp=2, sequence_parallel=True),
    Case(tp=2, sequence_parallel=True, tied=True, mtp=1),
    Case(cp=2, packed=True),
    Case(hybrid=True, tp=2, sequence_parallel=True),
]
MASKED = [*((case, torch.bool) for case in CASES), (CASES[0], torch.float32), (CASES[2], torch.float32)]


@pytest.mark.parametrize(("release", "case", "mask_dtype"), on_releases(MASKED, older=4), ids=str)
@on_ranks
def test_rows_outside_the_mask_count_for_nothing(case: Case, model: Any, inputs: Any, mask_dtype: torch.dtype) -> None:
    _agrees(case, model, inputs, mask_dtype)


@pytest.mark.parametrize("label_dtype", [torch.int32, torch.uint8, torch.int16], ids=str)
@on_ranks(Case(), release="0.19.2")
def test_labels_and_masks_of_other_integers(case: Case, model: Any, inputs: Any, label_dtype: torch.dtype) -> None:
    _agrees(case, model, inputs, torch.int64, label_dtype)


@pytest.mark.parametrize("case", [Case(), Case(tp=2), Case(tied=True, mtp=1), Case(hybrid=True)], ids=str)
@on_ranks
def test_a_frozen_head(case: Case, model: Any, inputs: Any) -> None:
    _agrees(case, model, inputs, frozen=True)
