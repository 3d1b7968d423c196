"""The shim of ROLL without a checkout: against log-softmax, one pass for two questions, and what is refused."""

from typing import Any
from unittest import mock

import pytest
import torch
from harness.rounding import assert_close

from mcore_unpatch.compat import LazyLogits, ProcessGroups, roll
from mcore_unpatch.compat.fused_head.settings import HeadSettings
from mcore_unpatch.compat.logits import lazy
from mcore_unpatch.compat.logits.lazy import LMHead


def _logits(words: int | None = None) -> LazyLogits:
    generator = torch.Generator().manual_seed(1)
    hidden, weight = torch.randn(2, 5, 8, generator=generator), torch.randn(30, 8, generator=generator)
    return LazyLogits(hidden.requires_grad_(), LMHead.of(weight, ProcessGroups(), HeadSettings(vocab_size=words)))


def test_log_probs_and_entropy_come_from_one_pass_with_gradients_of_both() -> None:
    logits, labels = _logits(), torch.arange(10).view(2, 5)
    with mock.patch.object(lazy, "run_pass", wraps=lazy.run_pass) as passes:
        log_probs, entropy = roll.vocab_parallel_logprobs(logits, labels), roll.vocab_parallel_entropy(logits)
    assert passes.call_count == 1
    torch.autograd.backward((log_probs * 2 + entropy).sum())
    found = logits.hidden.grad
    real = _logits()
    log_p = real.logits().log_softmax(-1)
    expected = log_p.gather(-1, labels[..., None]).squeeze(-1)
    level = -(log_p.exp() * log_p).sum(-1)
    torch.autograd.backward((expected * 2 + level).sum())
    assert found is not None
    assert real.hidden.grad is not None
    for ours, theirs in ((log_probs, expected), (entropy, level), (found, real.hidden.grad)):
        assert_close(ours.detach(), theirs.detach())


def test_entropy_asked_without_gradient_first_has_one_when_asked_with() -> None:
    logits = _logits()
    with torch.no_grad():
        roll.vocab_parallel_logprobs(logits, torch.zeros(2, 5, dtype=torch.long))
    assert roll.vocab_parallel_entropy(logits).requires_grad
    assert roll.vocab_parallel_entropy(_logits()).requires_grad


@pytest.mark.parametrize(("grad", "trained"), [(True, True), (True, False), (False, True), (False, False)])
def test_there_is_no_second_pass_without_need(grad: bool, trained: bool) -> None:
    """The remembered entropy serves whoever needs no more gradient than it has."""
    logits = _logits() if trained else _logits().detach()
    with mock.patch.object(lazy, "run_pass", wraps=lazy.run_pass) as passes, torch.set_grad_enabled(grad):
        roll.vocab_parallel_logprobs(logits, torch.zeros(2, 5, dtype=torch.long))
        assert roll.vocab_parallel_entropy(logits).requires_grad is (grad and trained)
    assert passes.call_count == 1


@pytest.mark.parametrize("shape", [(2, 5), (2, 5, 1), (2, 5, 3)])
def test_ids_of_one_or_of_several_for_each_token(shape: tuple[int, ...]) -> None:
    ids = torch.arange(30)[: torch.Size(shape).numel()].view(shape)
    real = _logits().logits()
    expected = real.gather(-1, ids.view(2, 5, -1)).view(shape)
    found = roll.op_compute_gather_by_teacher_indices(_logits(), ids.int())
    assert found.requires_grad
    assert_close(found.detach(), expected.detach())


@pytest.mark.parametrize("words", [None, 29])
def test_ids_outside_the_vocabulary_are_zero(words: int | None) -> None:
    ids = torch.tensor([[-100, 3, 30, 0, 29]] * 2)
    found = roll.op_compute_gather_by_teacher_indices(_logits(words), ids)
    known = (ids >= 0) & (ids < (words or 30))
    real = _logits().logits().gather(-1, ids.where(known, 0)[..., None]).squeeze(-1)
    assert_close(found.detach(), (real * known).detach())


@pytest.mark.parametrize(("words", "known"), [(None, 60), (59, 59), (30, 30)])
def test_the_vocabulary_is_that_of_all_ranks(words: int | None, known: int) -> None:
    """This rank has 30 words of 60, whatever its share computes for those of the other."""
    ids = torch.tensor([[-1, 0, 29, 30, 59]] * 2)
    with (
        mock.patch.object(roll, "size_and_rank", return_value=(2, 0)),
        mock.patch.object(LazyLogits, "compute", return_value=mock.Mock(**_ones(ids))),
    ):
        found = roll.op_compute_gather_by_teacher_indices(_logits(words), ids)
    assert torch.equal(found != 0, (ids >= 0) & (ids < known))


def _ones(ids: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"token_logprobs": torch.ones(*ids.shape, 1), "logsumexp": torch.ones(ids.shape)}


def test_a_teachers_top_k_and_the_loss_of_the_labels() -> None:
    logits, labels = _logits(), torch.arange(10).view(2, 5)
    real = logits.logits().detach()
    found, expected = roll.op_compute_topk_logits(logits, 3), real.topk(3)
    assert_close(found[0].detach(), expected.values)
    assert torch.equal(found[1], expected.indices)
    loss = -real.log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)
    assert_close(roll.vocab_parallel_cross_entropy(logits, labels).detach(), loss)


REFUSED: list[tuple[Any, type[Exception], str]] = [
    (lambda z: roll.op_compute_topk_logits(z, 0), ValueError, "topk: expected at least 1"),
    (lambda z: roll.op_compute_gather_by_teacher_indices(z, None), ValueError, "teacher_indices: expected the ids"),
    (lambda z: roll.vocab_parallel_cross_entropy(z, None, 0.1), NotImplementedError, "label_smoothing"),
    (lambda z: roll.vocab_parallel_logprobs(z.logits(), None), TypeError, "expected the LazyLogits"),
    (lambda z: roll.vocab_parallel_entropy(z.logits()), TypeError, "expected the LazyLogits"),
    (lambda z: roll.op_compute_topk_logits(z.logits(), 2), TypeError, "expected the LazyLogits"),
]


@pytest.mark.parametrize(("call", "error", "words"), REFUSED)
def test_what_needs_real_logits_is_refused(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call(_logits())
