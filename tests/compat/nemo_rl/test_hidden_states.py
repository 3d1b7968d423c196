"""`from_parallel_hidden_states_to_logprobs`: by hand, beside NeMo RL's own and its unfused path, and its memory."""

from typing import Any

import pytest
import torch
from downstream.checkouts import NEMO_RL, checkouts, loaded
from harness import on_ranks
from harness.models import Case
from harness.packing import Row
from harness.rounding import assert_agree
from megatron.core import parallel_state
from torch import Tensor

from mcore_unpatch.compat import resolve_groups
from mcore_unpatch.compat.nemo_rl import from_parallel_hidden_states_to_logprobs
from mcore_unpatch.compat.packing import next_token_labels, split_packed_row, zigzag_split
from mcore_unpatch.compat.skyrl import places_of

VOCAB, WIDTH, BATCH, LENGTH = 46, 12, 2, 16
UTILS = "nemo_rl.distributed.model_utils"
BY_HAND_AND_THEIRS = [pytest.param("", id="by hand"), *checkouts(NEMO_RL)]
Run = dict[str, Tensor]


def tensors(length: int, batch: int) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states `[s, b, h]`, the whole weight, tokens `[b, s]`."""
    generator = torch.Generator().manual_seed(2)
    hidden, weight = (torch.randn(*shape, generator=generator) for shape in ((length, batch, WIDTH), (VOCAB, WIDTH)))
    return hidden, weight, torch.randint(0, VOCAB, (batch, length), generator=generator)


def run(function: Any, hidden: Tensor, weight: Tensor) -> Run:
    """The result of `function(hidden, weight)`, and the gradients of both."""
    hidden, weight = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    result = function(hidden, weight)
    weights = torch.randn(result.shape, generator=torch.Generator().manual_seed(5))
    torch.autograd.backward((result * weights).sum())
    assert hidden.grad is not None
    assert weight.grad is not None
    return {"values": result.detach(), "hidden gradient": hidden.grad, "weight gradient": weight.grad}


def log_probs_by_hand(hidden: Tensor, weight: Tensor, labels: Tensor, own: Tensor | None = None) -> Tensor:
    """`[b, s]` from logits; a label outside the vocabulary gives 0 and the gradient of -logsumexp.

    Gradients come from the positions that are this rank's `own`, and over its loss, as the gather adds up those of all.
    """
    logits = (hidden @ weight.T).transpose(0, 1)
    total = logits.logsumexp(-1)
    known = labels < VOCAB
    picked = logits.gather(-1, labels.where(known, 0)[..., None]).squeeze(-1)
    log_probs = picked.where(known, total.detach()) - total
    return log_probs if own is None else log_probs.where(own, log_probs.detach())


def assert_same(ours: Run, theirs: Run) -> None:
    for name, other in theirs.items():
        assert_agree({name: ours[name]}, {name: other})
        assert other.abs().max() > 0


@pytest.mark.parametrize("checkout", BY_HAND_AND_THEIRS)
@pytest.mark.parametrize(("case", "chunk_size"), [(Case(), 1), (Case(), 5), (Case(tp=2), 16), (Case(tp=2), 100)])
@on_ranks(release="0.19.2")
def test_log_probs_and_gradients_under_tensor_parallelism(case: Case, checkout: str, chunk_size: int) -> None:
    tp_group = parallel_state.get_tensor_model_parallel_group()
    hidden, weight, tokens = tensors(LENGTH, BATCH)
    tokens[0, 3] = VOCAB + 7  # outside of the vocabulary
    share, shard = (x.chunk(case.tp)[tp_group.rank()].contiguous() for x in (hidden, weight))
    start = tp_group.rank() * len(shard)

    def by(function: Any, *between: Any) -> Any:
        rest = (None, tokens, start, start + len(shard), tp_group, False, None, chunk_size)
        return lambda hidden, weight: function(hidden, weight, *between, *rest)

    ours = run(by(from_parallel_hidden_states_to_logprobs), share, shard)
    if not checkout:
        truth = run(lambda h, w: log_probs_by_hand(h, w, tokens.roll(-1, 1))[:, :-1], hidden.double(), weight.double())
        for name in ("hidden gradient", "weight gradient"):
            truth[name] = truth[name].chunk(case.tp)[tp_group.rank()]
        return assert_same(ours, truth)
    with loaded(checkout, "nemo_rl", UTILS) as utils:
        theirs = utils.from_parallel_hidden_states_to_logprobs
        # 0.6.0 has one argument more, which it does not use.
        between = (None,) if "output_weight" in theirs.__code__.co_varnames[: theirs.__code__.co_argcount] else ()
        return assert_same(ours, run(by(theirs, *between), share, shard))


@pytest.mark.parametrize("checkout", BY_HAND_AND_THEIRS)
@on_ranks(Case(cp=2), release="0.19.2")
def test_padded_batches_under_context_parallelism(checkout: str) -> None:
    """NeMo RL's unfused path gathers log-probs over CP ranks and adds up the gradients; so does the shim."""
    groups = resolve_groups()
    hidden, weight, tokens = tensors(LENGTH, BATCH)
    rank = groups.cp.rank()
    share = zigzag_split(hidden, 2, rank, dim=0)
    ends = {"vocab_start_index": 0, "vocab_end_index": VOCAB, "tp_group": groups.tp, "cp_group": groups.cp}
    own = torch.isin(torch.arange(LENGTH), zigzag_split(torch.arange(LENGTH), 2, rank, dim=0)).expand(BATCH, -1)

    def shim(h: Tensor, w: Tensor) -> Tensor:
        return from_parallel_hidden_states_to_logprobs(h, w, None, zigzag_split(tokens, 2, rank), **ends, chunk_size=3)

    ours = run(shim, share, weight)
    if not checkout:
        truth = run(lambda h, w: log_probs_by_hand(h, w, tokens.roll(-1, 1), own)[:, :-1], hidden, weight)
        truth["hidden gradient"] = zigzag_split(truth["hidden gradient"], 2, rank, dim=0)
        return assert_same(ours, summed(truth))
    with loaded(checkout, "nemo_rl", UTILS) as utils:
        unfused = utils.from_parallel_logits_to_logprobs
        return assert_same(
            ours, run(lambda h, w: unfused((h @ w.T).transpose(0, 1).contiguous(), tokens, **ends), share, weight)
        )


@pytest.mark.parametrize("checkout", BY_HAND_AND_THEIRS)
@on_ranks(Case(cp=2), release="0.19.2")
def test_packed_rows_under_context_parallelism(checkout: str) -> None:
    groups = resolve_groups()
    plan = Row([11, 5, 7], cp_size=2, cp_rank=groups.cp.rank())
    bounds, params = plan.bounds, plan.packed_seq_params()
    hidden, weight, tokens = tensors(sum(plan.padded), 1)
    ends = {"vocab_start_index": 0, "vocab_end_index": VOCAB, "cp_group": groups.cp}
    token, follows = places_of(bounds, LENGTH, tokens.shape[1], None, None)

    def split(row: Tensor) -> Tensor:
        return split_packed_row(row, bounds, groups.cp)

    def shim(h: Tensor, w: Tensor) -> Tensor:
        row = from_parallel_hidden_states_to_logprobs(
            h, w, None, split(tokens), tp_group=groups.tp, packed_seq_params=params, **ends
        )
        return torch.nn.functional.pad(row, (0, 1))[0, token].where(follows, 0)

    share = split(hidden.transpose(0, 1)).transpose(0, 1).contiguous()
    ours = run(shim, share, weight)
    if not checkout:
        number = torch.arange(tokens.shape[1])[None]
        own = torch.isin(number, split(number))
        labels = next_token_labels(tokens, packed_seq_params=params, fill=0)
        truth = run(lambda h, w: log_probs_by_hand(h, w, labels, own)[0, token].where(follows, 0), hidden, weight)
        truth["hidden gradient"] = split(truth["hidden gradient"].transpose(0, 1)).transpose(0, 1)
        return assert_same(ours, summed(truth))
    with loaded(checkout, "nemo_rl", UTILS) as utils:
        unfused = utils.from_parallel_logits_to_logprobs_packed_sequences

        def theirs(h: Tensor, w: Tensor) -> Tensor:
            logits = (h @ w.T).transpose(0, 1).contiguous()
            log_probs: Tensor = unfused(logits, tokens, bounds, LENGTH, group=groups.tp, **ends)
            return log_probs

        return assert_same(ours, run(theirs, share, weight))


def summed(run: Run) -> Run:
    """The gradients of two ranks with the same loss, added up."""
    return {name: value if name == "values" else 2 * value for name, value in run.items()}


@on_ranks(release="0.19.2")
def test_wrong_arguments_are_named_and_inference_keeps_no_graph() -> None:
    tp_group = parallel_state.get_tensor_model_parallel_group()
    hidden, weight, tokens = tensors(LENGTH, BATCH)
    with pytest.raises(TypeError, match=r"target.*0\.6\.0"):
        from_parallel_hidden_states_to_logprobs(hidden, weight, None, None, tokens, 0, tp_group)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"expected \(0, 46\).*got \(0, 40\)"):
        from_parallel_hidden_states_to_logprobs(hidden, weight, None, tokens, 0, 40, tp_group)
    with pytest.raises(ValueError, match="tensor_parallel_hidden_states"):
        from_parallel_hidden_states_to_logprobs(hidden[:5], weight, None, tokens, 0, VOCAB, tp_group)
    kept = from_parallel_hidden_states_to_logprobs(
        hidden.requires_grad_(), weight, None, tokens, 0, VOCAB, tp_group, inference_only=True
    )
    assert not kept.requires_grad
