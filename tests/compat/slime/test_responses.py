"""The shims of slime and miles without a checkout: against each sample alone, through the default path in float64."""

from argparse import Namespace
from typing import Any

import pytest
import torch
from downstream.micro_batches import ARGS, RESPONSE, TOTAL, packed, padded, tokens_of, wrapped_model
from harness import run_on_ranks
from harness.models import Case, build_model, start_world
from harness.oracle import gradients_of
from harness.rounding import assert_agree, assert_close
from megatron.core import parallel_state
from torch import Tensor

from mcore_unpatch.compat import DeferredHead, LazyLogits, ProcessGroups, attach, miles, slime
from mcore_unpatch.compat.logits.lazy import LMHead
from mcore_unpatch.compat.responses import Layout, response_spans

Results = tuple[list[dict[int, tuple[float, float]]], dict[str, Tensor]]


def _weights(number: int, tokens: Tensor) -> Tensor:
    """Of each token of a sample, a weight in the loss."""
    return torch.sin(tokens.double() + 7 * number)


def _responses(case: Case, shim: str) -> Results:
    """Log-prob and entropy by sample and position; gradients of a weighted sum, summed over context ranks."""
    start_world(case)
    model, batch = wrapped_model(case), (packed if shim == "slime" else padded)(case)
    args = Namespace(**{**vars(ARGS), "qkv_format": "thd" if shim == "slime" else "bshd"})
    with attach(model, DeferredHead()):
        output = model(**batch.call)
    if shim == "slime":
        _, found = slime.get_log_probs_and_entropy(output, args=args, with_entropy=True, **batch.samples)
    else:
        found = miles.get_log_probs_and_entropy(output, args=args, with_entropy=True, **batch.samples)
    group = parallel_state.get_context_parallel_group()
    lengths = batch.samples.get("max_seq_lens")
    layout = Layout(output.shape[:-1].numel(), group.size(), group.rank(), max_seq_lens=lengths)
    loss, places = torch.zeros(()), []
    for number, spans in enumerate(response_spans(TOTAL, RESPONSE, layout)):
        at = [place for span in spans for place in range(span.tokens.start, span.tokens.stop)]
        values, entropy = found["log_probs"][number], found["entropy"][number]
        assert len(at) == len(values) == len(entropy)
        weight = _weights(number, torch.tensor(at))
        loss = loss + (weight * values + weight.cos() * entropy).sum()
        places.append({p: (v, e) for p, v, e in zip(at, values.tolist(), entropy.tolist(), strict=True)})
    torch.autograd.backward(loss)
    gradients = gradients_of(model)
    for gradient in gradients.values():
        torch.distributed.all_reduce(gradient, group=group)
    return places, gradients


def _one_at_a_time(case: Case) -> Results:
    start_world(case)
    model = build_model(case).double()
    places = []
    for number, (tokens, response) in enumerate(zip(tokens_of(case), RESPONSE, strict=True)):
        positions = torch.arange(len(tokens))
        logits = model(input_ids=tokens[None], position_ids=positions[None], attention_mask=None)[0]
        log_p = (logits / ARGS.rollout_temperature).log_softmax(-1)
        at = positions[len(tokens) - response :]
        values, entropy = log_p[at - 1, tokens[at]], -(log_p.exp() * log_p).sum(-1)[at - 1]
        weight = _weights(number, at)
        torch.autograd.backward((weight * values + weight.cos() * entropy).sum())
        pairs = zip(values.tolist(), entropy.tolist(), strict=True)
        places.append(dict(zip(at.tolist(), pairs, strict=True)))
    return places, gradients_of(model)


CASES = [
    (Case(), "slime"),
    (Case(cp=2), "slime"),
    (Case(cp=4), "slime"),
    (Case(cp=2, tp=2, sequence_parallel=True), "slime"),
    (Case(), "miles"),
    (Case(cp=2), "miles"),
]


@pytest.mark.parametrize(("case", "shim"), CASES, ids=str)
def test_packing_and_ranks_change_nothing(release: str, case: Case, shim: str) -> None:
    truth, gradients = run_on_ranks(release, 1, _one_at_a_time, Case())[0]
    ranks: list[Results] = run_on_ranks(release, case.ranks, _responses, case, shim)
    for number, expected in enumerate(truth):
        found = {place: value for places, _ in ranks for place, value in places[number].items()}
        assert found.keys() == expected.keys()
        if expected:
            assert_close(*(torch.tensor([pairs[place] for place in expected]) for pairs in (found, expected)))
    for _, mine in ranks:
        if case.tp == 1:
            assert_agree(mine, gradients)


LAZY_NEEDED: list[Any] = [
    lambda z: slime.calculate_log_probs_and_entropy(z, None, None),
    lambda z: slime.get_log_probs_and_entropy(z, args=ARGS, unconcat_tokens=[], total_lengths=[], response_lengths=[]),
    lambda z: miles.calculate_log_probs_and_entropy(z, None, None),
    lambda z: miles.get_log_probs_and_entropy(z, args=ARGS, unconcat_tokens=[], total_lengths=[], response_lengths=[]),
    lambda z: slime.get_label_token_log_probs_from_vocab_parallel_logits(z, torch.zeros(1, 1)),
]


@pytest.mark.parametrize("call", LAZY_NEEDED)
def test_real_logits_are_refused_where_the_trainers_own_function_is_missing(call: Any) -> None:
    with pytest.raises(TypeError, match=r"expected the LazyLogits.*, got Tensor, and there is no (slime|miles)\."):
        call(torch.zeros(1, 2, 3))


def test_a_sample_without_a_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="sample 1 has 3 response tokens of 3"):
        list(response_spans([3, 3], [2, 3], Layout(6)))


def test_a_rank_without_response_tokens_still_has_a_graph() -> None:
    """Its backward must run: other context-parallel ranks wait for it in the attention."""
    hidden, weight = torch.randn(1, 5, 4).requires_grad_(), torch.randn(6, 4).requires_grad_()
    logits = LazyLogits(hidden, LMHead.of(weight, ProcessGroups()))
    tokens = {"unconcat_tokens": [torch.ones(5, dtype=torch.long)], "total_lengths": [5], "response_lengths": [0]}
    for top_p in ({}, {"top_p_token_ids": [[]], "top_p_token_offsets": [[0]]}):
        _, found = slime.get_log_probs_and_entropy(logits, args=ARGS, with_entropy=True, **tokens, **top_p)
        assert [part.shape for parts in found.values() for part in parts] == [(0,), (0,)]
        torch.autograd.backward(sum(part.sum() for parts in found.values() for part in parts))
        assert hidden.grad is not None
        assert not hidden.grad.any()
        hidden.grad = None


def test_true_on_policy_scoring_is_refused() -> None:
    weight = torch.ones(5, 4)
    logits = LazyLogits(torch.ones(3, 4), LMHead.of(weight, ProcessGroups()))
    with pytest.raises(NotImplementedError, match="do not attach DeferredHead"):
        miles.calculate_log_probs_and_entropy(logits, torch.zeros(3), None, true_on_policy=True)


def test_padded_samples_need_their_lengths() -> None:
    weight = torch.ones(5, 4)
    logits = LazyLogits(torch.ones(1, 3, 4), LMHead.of(weight, ProcessGroups()))
    args = Namespace(**{**vars(ARGS), "qkv_format": "bshd"})
    with pytest.raises(ValueError, match="max_seq_lens: expected the padded length of each sample for bshd, got None"):
        miles.get_log_probs_and_entropy(logits, args=args, unconcat_tokens=[], total_lengths=[], response_lengths=[])


@pytest.mark.parametrize("wanted", [True, False])
def test_the_entropy_has_a_gradient_where_one_is_wanted(wanted: bool) -> None:
    weight = torch.randn(6, 4).requires_grad_()
    logits = LazyLogits(torch.randn(1, 5, 4), LMHead.of(weight, ProcessGroups()))
    tokens = {"unconcat_tokens": [torch.ones(5, dtype=torch.long)], "total_lengths": [5], "response_lengths": [2]}
    found = miles.get_log_probs_and_entropy(
        logits, args=ARGS, with_entropy=True, entropy_requires_grad=wanted, **tokens
    )
    assert (found["log_probs"][0].requires_grad, found["entropy"][0].requires_grad) == (True, wanted)
