"""The shims of slime and miles without a checkout: against each sample alone, through the default path in float64."""

from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from downstream.micro_batches import ARGS, RESPONSE, TOTAL, packed, padded, tokens_of, wrapped_model
from harness import on_ranks, run_on_ranks
from harness.attention import zigzag_places
from harness.models import Case, build_model, start_world
from harness.oracle import gradients_of
from harness.rounding import assert_agree, assert_close
from megatron.core import parallel_state
from torch import Tensor

from mcore_unpatch.compat import DeferredHead, LazyLogits, ProcessGroups, attach, miles, slime
from mcore_unpatch.compat.logits.lazy import LMHead
from mcore_unpatch.compat.slime import Samples, _keep_mask

Results = tuple[list[dict[int, tuple[float, float]]], dict[str, Tensor]]


def _weights(number: int, tokens: Tensor) -> Tensor:
    """Of each token of a sample, a weight in the loss."""
    return torch.sin(tokens.double() + 7 * number)


def _held(ranks: int, rank: int, max_seq_lens: list[int] | None = None) -> list[Tensor]:
    """Of each sample, which of its response tokens a rank predicts, by the zigzag of whole samples."""
    held = []
    for number, (total, length) in enumerate(zip(TOTAL, RESPONSE, strict=True)):
        padded = total if max_seq_lens is None else max_seq_lens[number]
        places = zigzag_places(padded + -padded % (2 * ranks), ranks, rank)
        own = torch.tensor(sorted(places)) - (total - length - 1)
        held.append(own[(own >= 0) & (own < length)])
    return held


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
    loss, places = torch.zeros(()), []
    held = _held(group.size(), group.rank(), batch.samples.get("max_seq_lens"))
    for number, (total, length, own) in enumerate(zip(TOTAL, RESPONSE, held, strict=True)):
        at = (own + total - length).tolist()
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
        Samples([], [3, 3], [2, 3])


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


@pytest.mark.parametrize("top_p", [False, True], ids=["all tokens", "top-p"])
@pytest.mark.parametrize("case", [1, 2], ids=["one rank", "two ranks"])
@on_ranks(release="0.19.2")
def test_a_row_in_equal_parts_and_the_tokens_that_sampling_kept(case: int, top_p: bool) -> None:
    """slime's `allgather_cp`: results in zigzag chunks from contiguous parts; values and gradients by hand."""
    group = torch.distributed.group.WORLD
    draw = torch.Generator().manual_seed(3)
    tokens = [torch.randint(0, 30, (length,), generator=draw) for length in TOTAL]
    hidden, head = (torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in ((40, 8), (30, 8)))
    kept = [torch.rand(response, 30, generator=draw) < 0.4 for response in RESPONSE]
    asked: dict[str, Any] = {"unconcat_tokens": tokens, "total_lengths": TOTAL, "response_lengths": RESPONSE}
    if top_p:
        asked["top_p_token_ids"] = [rows.nonzero()[:, 1].tolist() for rows in kept]
        asked["top_p_token_offsets"] = [[0, *rows.sum(1).cumsum(0).tolist()] for rows in kept]
    truth_head, start, truth, truth_loss = head.clone().requires_grad_(), 0, [], torch.zeros(())
    for number, (own, response, rows) in enumerate(zip(tokens, RESPONSE, kept, strict=True)):
        at = torch.arange(len(own) - response, len(own))
        logits = hidden[start + at - 1] @ truth_head.T / ARGS.rollout_temperature
        counts = rows.scatter(1, own[at, None], True) if top_p else torch.ones_like(rows)
        values = logits.where(counts, -torch.inf).log_softmax(-1).gather(1, own[at, None]).squeeze(1)
        entropy = -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)
        truth_loss = truth_loss + (_weights(number, at) * values + _weights(number, at).cos() * entropy).sum()
        truth.append((at, values.detach(), entropy.detach()))
        start += len(own)
    torch.autograd.backward(truth_loss)
    share = hidden.chunk(case)[group.rank()][None]
    logits = LazyLogits(share, LMHead.of(head.requires_grad_(), ProcessGroups(cp=group)))
    args = Namespace(**{**vars(ARGS), "allgather_cp": True})
    _, found = slime.get_log_probs_and_entropy(logits, args=args, with_entropy=True, **asked)
    loss = torch.zeros(())
    for number, mine in enumerate(_held(case, group.rank())):
        at, *expected = (part[mine] for part in truth[number])
        for name, values in zip(("log_probs", "entropy"), expected, strict=True):
            assert_close(found[name][number].detach(), values, torch.float64)
        weight = _weights(number, at)
        loss = loss + (weight * found["log_probs"][number] + weight.cos() * found["entropy"][number]).sum()
    torch.autograd.backward(loss)
    torch.distributed.all_reduce(head.grad)
    assert_close(head.grad, truth_head.grad, torch.float64)


def test_values_that_a_teacher_is_asked_for() -> None:
    hidden, weight, ids = torch.randn(5, 4), torch.randn(6, 4), torch.randint(0, 6, (5, 2))
    log_p = (hidden @ weight.T).double().log_softmax(-1)
    logits = LazyLogits(hidden, LMHead.of(weight.requires_grad_(), ProcessGroups()))
    found = slime.get_label_token_log_probs_from_vocab_parallel_logits(logits, ids)
    assert not found.requires_grad
    assert_close(found, log_p.gather(1, ids).detach())
    cold = Namespace(**{**vars(ARGS), "rollout_temperature": 0.0})  # miles: not divided
    tokens = {"unconcat_tokens": [ids[:, 0]], "total_lengths": [5], "response_lengths": [4]}
    mine = miles.get_log_probs_and_entropy(logits[None], args=cold, **tokens)["log_probs"][0]
    assert_close(mine.detach(), log_p[:-1].gather(1, ids[1:, :1]).squeeze(1).detach())


LENGTHS = [(5, 2), (7, 3), (4, 1), (3, 0)]


@pytest.mark.parametrize("padded", [None, [6, 9, 4, 8]], ids=["packed", "padded"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_each_response_token_is_predicted_on_one_rank_in_the_row_before_it(
    ranks: int, padded: list[int] | None
) -> None:
    tokens = [torch.arange(total) + 100 * number for number, (total, _) in enumerate(LENGTHS)]
    samples = Samples(tokens, [total for total, _ in LENGTHS], [response for _, response in LENGTHS], padded)
    wanted = [(n, total - length + k) for n, (total, length) in enumerate(LENGTHS) for k in range(length)]
    unit = 1 if ranks == 1 else 2 * ranks
    spans = [-(-(padded[n] if padded else total) // unit) * unit for n, (total, _) in enumerate(LENGTHS)]
    zigzag: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]
    for number, span in enumerate(spans):
        chunk = span // unit
        for rank in range(ranks):
            for part in (rank, unit - 1 - rank) if ranks > 1 else (0,):
                width = chunk if ranks > 1 else span
                zigzag[rank] += [(number, at) for at in range(part * width, (part + 1) * width)]
    for rank in range(ranks):
        mine, rows = samples.rows(ranks, rank)
        assert [zigzag[rank].index((wanted[at][0], wanted[at][1] - 1)) for at in mine.tolist()] == rows.tolist()
        assert len(mine) == sum((number, at - 1) in zigzag[rank] for number, at in wanted)
        assert [len(part) for part in samples.split(mine, mine)] == [
            sum((number, at - 1) in zigzag[rank] for number, at in wanted if number == n) for n in range(len(LENGTHS))
        ]
    row = [(n, at) for n, (total, _) in enumerate(LENGTHS) for at in range(padded[n] if padded else total)]
    share = -(-len(row) // ranks)
    for rank in range(ranks):
        mine, rows = samples.rows(ranks, rank, share)
        own = row[rank * share : (rank + 1) * share]
        assert [own[at] for at in rows.tolist()] == [(wanted[at][0], wanted[at][1] - 1) for at in mine.tolist()]
        assert len(mine) == sum((number, at - 1) in own for number, at in wanted)


def test_a_sample_that_is_all_response_is_refused() -> None:
    with pytest.raises(ValueError, match="sample 1 has 2 response tokens of 2 in all"):
        Samples([torch.zeros(3), torch.zeros(2)], [3, 2], [2, 2])


@pytest.mark.parametrize("entropy_grad", [True, False])
@pytest.mark.parametrize("with_entropy", [True, False])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("count", [5, 0])
def test_the_values_of_one_sample(count: int, masked: bool, with_entropy: bool, entropy_grad: bool) -> None:
    weight, hidden = torch.randn(8, 4).requires_grad_(), torch.randn(count, 4).requires_grad_()
    tokens = torch.tensor([3, 0, 7, 2, 5])
    keep = torch.ones(count, 8, dtype=torch.bool)
    keep[:, [1, 6]] = False
    found, entropy = slime.calculate_log_probs_and_entropy(
        LazyLogits(hidden, LMHead.of(weight, ProcessGroups())),
        tokens,
        None,
        with_entropy=with_entropy,
        log_prob_keep_mask=keep if masked else None,
        with_entropy_grad=entropy_grad,
    )
    logits = hidden @ weight.T
    kept = logits.masked_fill(~keep, -torch.inf) if masked else logits
    assert_close(found.detach(), kept.log_softmax(-1).gather(1, tokens[:count, None]).detach())
    assert found.shape == (count, 1)
    if not with_entropy:
        assert entropy is None
        return
    assert entropy is not None
    assert entropy.requires_grad is entropy_grad
    assert_close(entropy.detach(), -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1).detach())


@pytest.mark.parametrize("given", [{}, {"top_p_token_ids": [[1, 2]]}, {"top_p_token_offsets": [[0, 1, 2]]}])
def test_without_ids_or_without_offsets_all_tokens_count(given: dict[str, Any]) -> None:
    logits = LazyLogits(torch.randn(1, 5, 4), LMHead.of(torch.randn(6, 4), ProcessGroups()))
    tokens = {"unconcat_tokens": [torch.arange(5)], "total_lengths": [5], "response_lengths": [2]}
    empty, found = slime.get_log_probs_and_entropy(logits, args=ARGS, **tokens, **given)
    _, expected = slime.get_log_probs_and_entropy(logits, args=ARGS, **tokens)
    assert empty.shape == (0,)
    assert list(found) == ["log_probs"]
    assert torch.equal(found["log_probs"][0], expected["log_probs"][0])


def test_arguments_that_a_trainer_may_lack() -> None:
    """Without a temperature it is 1; without a coefficient the entropy needs no gradient."""
    logits = LazyLogits(torch.randn(1, 5, 4), LMHead.of(torch.randn(6, 4).requires_grad_(), ProcessGroups()))
    tokens = {"unconcat_tokens": [torch.arange(5)], "total_lengths": [5], "response_lengths": [2]}
    bare = Namespace(allgather_cp=False)
    _, found = slime.get_log_probs_and_entropy(logits, args=bare, with_entropy=True, **tokens)
    log_p = logits.logits()[0].log_softmax(-1)
    assert_close(found["log_probs"][0].detach(), log_p[[2, 3], [3, 4]].detach())
    for coefficient, trained in ((None, False), (0.0, False), (0.1, True)):
        args = bare if coefficient is None else Namespace(**vars(bare), entropy_coef=coefficient)
        _, found = slime.get_log_probs_and_entropy(logits, args=args, with_entropy=True, **tokens)
        assert found["entropy"][0].requires_grad is trained


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_what_top_p_kept_is_a_mask_over_the_vocabulary_of_this_rank(rank: int) -> None:
    """Two samples of two tokens, of which this rank predicts three; of the last nothing was recorded."""
    group = SimpleNamespace(rank=lambda: rank, size=lambda: 3)
    logits: Any = SimpleNamespace(
        shape=(4, 4), device=torch.device("cpu"), head=SimpleNamespace(groups=SimpleNamespace(tp=group))
    )
    ids, offsets = [[0, 5, 11, 3, 4], [8]], [[0, 3, 5], [0, 1]]
    found = _keep_mask(logits, torch.tensor([0, 2, 3]), [2, 2], ids, offsets)
    whole = torch.zeros(3, 12, dtype=torch.bool)
    whole[0, [0, 5, 11]] = whole[1, 8] = whole[2] = True
    assert torch.equal(found, whole[:, rank * 4 : rank * 4 + 4])
    logits.head.groups.tp = None
    assert torch.equal(_keep_mask(logits, torch.tensor([0, 2, 3]), [2, 2], ids, offsets), whole[:, :4])


RECORDED = [  # ids and offsets of one sample with two response tokens: which ids count for each, None for all
    ([], [], [None, None]),
    ([], [0], [None, None]),
    ([2], [0, 1], [[2], None]),
    ([2, 3], [0, 1, 2], [[2], [3]]),
    ([2, 3, 1], [0, 1, 2, 3], [[2], [3]]),
    ([9, 2, 3], [1, 1, 3], [[], [2, 3]]),
    ([2, 3, 0], [0, 0, 0], [[], []]),
]


@pytest.mark.parametrize(("ids", "offsets", "kept"), RECORDED)
@pytest.mark.parametrize("mine", [[0, 1], [0], [1], []], ids=str)
def test_fewer_and_more_recorded_tokens_than_the_response_has(
    ids: list[int], offsets: list[int], kept: list[list[int] | None], mine: list[int]
) -> None:
    groups = SimpleNamespace(tp=None)
    logits: Any = SimpleNamespace(shape=(2, 4), device=torch.device("cpu"), head=SimpleNamespace(groups=groups))
    found = _keep_mask(logits, torch.tensor(mine, dtype=torch.long), [2], [ids], [offsets])
    expected = [[rows is None or token in rows for token in range(4)] for rows in map(kept.__getitem__, mine)]
    assert found.tolist() == expected
