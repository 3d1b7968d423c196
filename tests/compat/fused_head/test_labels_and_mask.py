"""Rows without a label, rows the mask leaves out, rows whose label is ignored: their results, and what they cost."""

from collections.abc import Iterator
from contextlib import contextmanager
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

from mcore_unpatch.compat.fused_head import plan as module
from mcore_unpatch.compat.fused_head.problem import Problem
from mcore_unpatch.compat.fused_head.torch_backend import TorchBackend


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


TOKENS, LABELLED = 200, 20


def mostly_ignored(ignore_index: int = -100) -> Inputs:
    inputs = make_inputs(TOKENS, 8, 50)
    inputs.labels[torch.arange(TOKENS) % (TOKENS // LABELLED) > 0] = ignore_index
    return inputs


@contextmanager
def rows_of_the_backend() -> Iterator[list[int]]:
    """The number of rows that each pass, forward or backward, computes."""
    seen: list[int] = []
    forward, backward = TorchBackend.forward, TorchBackend.backward

    def counted(of: Any) -> Any:
        def call(self: TorchBackend, problem: Problem, *others: Any) -> Any:
            seen.append(problem.row_count)
            return of(self, problem, *others)

        return call

    with (
        mock.patch.object(TorchBackend, "forward", counted(forward)),
        mock.patch.object(TorchBackend, "backward", counted(backward)),
    ):
        yield seen


def on_a_device() -> Any:
    return mock.patch.object(module, "waiting_is_free", return_value=False)


@pytest.mark.parametrize("ignore_index", [-100, 7])
def test_the_work_and_the_bits_of_a_mask(ignore_index: int) -> None:
    inputs = mostly_ignored(ignore_index)
    inputs.labels[inputs.labels == 7] = ignore_index
    live = inputs.labels != ignore_index
    with rows_of_the_backend() as rows:
        found = results(linear_logprob, inputs, ignore_index=ignore_index)
    assert rows == [int(live.sum())] * 2
    masked = results(linear_logprob, inputs, ignore_index=None, mask=live)
    assert all(torch.equal(found[name], masked[name]) for name in masked)
    truth = results(materialised, inputs.in_float64(), mask=live, ignore_index=ignore_index)
    assert_exact(found, truth, inputs)
    for name in ("logprobs", "entropy", "hidden.grad"):
        assert not found[name][~live].any()
        assert found[name][live].any()


@pytest.mark.parametrize("by_a_mask", [False, True])
def test_a_bound_needs_no_look_at_labels_or_mask(by_a_mask: bool) -> None:
    """As on a GPU: so many rows are computed, and those too many are dropped."""
    inputs = mostly_ignored()
    live = inputs.labels != -100
    given = {"mask": live, "ignore_index": None} if by_a_mask else {}
    exact, truth = results(linear_logprob, inputs, **given), results(materialised, inputs.in_float64(), mask=live)
    for bound in (LABELLED, LABELLED + 5, TOKENS):
        with on_a_device(), rows_of_the_backend() as rows, mock.patch.object(torch.Tensor, "__int__") as waits:
            found = results(linear_logprob, inputs, max_rows=bound, **given)
        assert not waits.called
        assert rows == [bound] * 2
        assert_exact(found, truth, inputs, exact)
        assert_exact(results(linear_logprob, inputs, max_rows=bound, **given), truth, inputs, exact)
    few = {"max_rows": LABELLED - 1, **given}
    with on_a_device():
        assert linear_logprob(inputs.hidden, inputs.weight, inputs.labels, **few)[0].isnan().all()
    with pytest.raises(ValueError, match="max_rows: expected at least 20, the rows to compute, got 19"):
        linear_logprob(inputs.hidden, inputs.weight, inputs.labels, **few)


def test_without_a_bound_a_device_is_waited_for_once() -> None:
    inputs = mostly_ignored()
    with on_a_device(), rows_of_the_backend() as rows:
        found = results(linear_logprob, inputs)
    assert rows == [LABELLED] * 2
    exact = results(linear_logprob, inputs)
    assert all(torch.equal(found[name], exact[name]) for name in exact)


def test_where_nothing_can_wait_all_rows_are_computed_and_some_dropped() -> None:
    """As while a CUDA graph is captured (test_cuda.py captures one)."""
    inputs = mostly_ignored()
    mask = torch.arange(TOKENS) % 3 > 0
    temperature = torch.ones(TOKENS).masked_fill((inputs.labels == -100) | ~mask, 0)  # nobody looks there
    for options in ({}, {"mask": mask}, {"mask": mask, "temperature": temperature}):
        with (
            on_a_device(),
            mock.patch.object(module, "being_captured", return_value=True),
            rows_of_the_backend() as rows,
        ):
            found = results(linear_logprob, inputs, **options)
        assert rows == [TOKENS] * 2
        live = (inputs.labels != -100) & options.get("mask", torch.tensor(True))
        assert_exact(found, results(materialised, inputs.in_float64(), mask=live), inputs)


def test_a_mask_and_labels_leave_out_together() -> None:
    inputs = mostly_ignored()
    mask = torch.arange(TOKENS) % 20 == 0
    with rows_of_the_backend() as rows:
        found = results(linear_logprob, inputs, mask=mask)
    assert rows == [LABELLED // 2] * 2
    masked = results(linear_logprob, inputs, ignore_index=None, mask=mask & (inputs.labels != -100))
    assert all(torch.equal(found[name], masked[name]) for name in masked)


def test_no_ignored_label_copies_nothing() -> None:
    inputs = make_inputs(TOKENS, 8, 50)
    with mock.patch.object(torch.Tensor, "index_select", side_effect=AssertionError("copied")):
        results(linear_logprob, inputs)
        results(linear_logprob, inputs, mask=torch.ones(TOKENS))


def test_none_ignores_nothing() -> None:
    inputs = mostly_ignored()
    with rows_of_the_backend() as rows:
        found = results(linear_logprob, inputs, ignore_index=None)
    assert rows == [TOKENS] * 2
    assert_exact(found, results(materialised, inputs.in_float64(), ignore_index=None), inputs)
    assert not found["logprobs"][inputs.labels == -100].any()
