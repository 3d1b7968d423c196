"""Rows without a label, rows the mask leaves out, and what they cost."""

from typing import Any
from unittest import mock

import pytest
import torch
from fused_head.oracle import (
    Inputs,
    assert_as_exact_as_materialised,
    assert_exact,
    grad_of,
    linear_logprob,
    make_inputs,
    materialised,
    results,
)
from harness.rounding import assert_close


def labelled(labels: list[int]) -> Inputs:
    inputs = make_inputs(len(labels), 8, 30)
    inputs.labels.copy_(torch.tensor(labels))
    return inputs


def gradient_of_logprobs(inputs: Inputs, **options: Any) -> torch.Tensor:
    hidden = inputs.hidden.clone().requires_grad_()
    logprobs, _ = linear_logprob(hidden, inputs.weight, inputs.labels, **options)
    (logprobs * inputs.logprob_grad).sum().backward()
    return grad_of(hidden)


def test_ignore_index_may_be_a_token_or_nothing() -> None:
    inputs = labelled([3, 4, -100])
    assert_as_exact_as_materialised(inputs, ignore_index=4)
    assert not gradient_of_logprobs(inputs, ignore_index=4)[1].any()
    legacy = gradient_of_logprobs(inputs, ignore_index=None, out_of_vocab_grad="legacy")
    assert legacy[2].any()
    assert not gradient_of_logprobs(inputs, out_of_vocab_grad="legacy")[2].any()


def test_legacy_keeps_the_softmax_part_of_the_gradient() -> None:
    inputs = labelled([3, 30, -7])
    p = (inputs.hidden.double() @ inputs.weight.double().t()).softmax(-1)
    expected = -(p @ inputs.weight.double()) * inputs.logprob_grad[:, None]
    grad = gradient_of_logprobs(inputs, out_of_vocab_grad="legacy")
    assert_close(grad[1:], expected[1:])
    assert torch.equal(grad[0], gradient_of_logprobs(inputs)[0])
    logprobs, _ = linear_logprob(inputs.hidden, inputs.weight, inputs.labels, out_of_vocab_grad="legacy")
    assert logprobs[1:].tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16])
def test_mask_selects_and_does_not_weigh(dtype: torch.dtype, weight_dtype: torch.dtype) -> None:
    inputs = make_inputs((5, 7), 16, 60, weight_dtype)
    mask = (torch.rand(5, 7, generator=torch.Generator().manual_seed(1)) * 3).round().to(dtype)
    temperature = torch.rand(5, 7) + 0.5
    temperature[mask == 0] = 0  # nobody looks there
    honest = temperature.where(mask != 0, 1)
    truth = results(materialised, inputs.in_float64(), mask=mask, temperature=honest)
    found = results(linear_logprob, inputs, mask=mask, temperature=temperature, tile_bytes=9_000)
    assert_exact(found, truth, inputs)
    for name in ("logprobs", "entropy", "hidden.grad"):
        assert not found[name][mask == 0].any()


def test_masked_rows_may_hold_anything() -> None:
    inputs = make_inputs(4, 8, 30)
    mask = torch.tensor([1, 0, 1, 0])
    clean = results(linear_logprob, inputs, mask=mask)
    inputs.hidden[1] = torch.nan
    inputs.labels[3] = -5
    dirty = results(linear_logprob, inputs, mask=mask)
    assert all(torch.equal(clean[name], dirty[name]) for name in clean)


@pytest.mark.parametrize("wrong", [0.0, -1.0, torch.nan, torch.inf])
def test_a_wrong_temperature_is_never_silent(wrong: float) -> None:
    """The CPU raises (test_errors.py); a GPU, which cannot without waiting, makes the row NaN."""
    inputs = make_inputs(4, 8, 30)
    temperature = torch.tensor([1.0, wrong, 0.5, 2.0])
    with mock.patch("mcore_unpatch.compat.fused_head.plan.waiting_is_free", return_value=False):
        logprobs, entropy = linear_logprob(
            inputs.hidden, inputs.weight, inputs.labels, temperature=temperature, entropy=True
        )
    assert entropy is not None
    assert logprobs.isnan().tolist() == entropy.isnan().tolist() == [False, True, False, False]
