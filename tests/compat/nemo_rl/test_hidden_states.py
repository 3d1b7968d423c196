"""`from_parallel_hidden_states_to_logprobs`: beside NeMo RL's, beside its unfused path under CP, and its memory."""

from typing import Any

import pytest
import torch
from downstream.checkouts import NEMO_RL, checkouts, loaded
from fused_head.counters import peak_memory
from harness import on_ranks, run_on_ranks
from harness.rounding import assert_agree
from megatron.core import parallel_state
from torch import Tensor

from mcore_unpatch.compat import plan_packing, zigzag_split
from mcore_unpatch.compat.nemo_rl import from_parallel_hidden_states_to_logprobs
from mcore_unpatch.compat.packing.gather import split_packed_row
from mcore_unpatch.compat.skyrl import places_of

VOCAB, WIDTH, BATCH, LENGTH = 46, 12, 2, 16
UTILS = "nemo_rl.distributed.model_utils"
Run = tuple[Tensor, Tensor, Tensor]


def groups_of(tp: int, cp: int = 1) -> tuple[Any, Any]:
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=tp, context_parallel_size=cp)
    return parallel_state.get_tensor_model_parallel_group(), parallel_state.get_context_parallel_group()


def tensors(length: int, batch: int, tp_group: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states `[s, b, h]`, this rank's shard of the weight, tokens `[b, s]`."""
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(length, batch, WIDTH, generator=generator)
    weight = torch.randn(VOCAB, WIDTH, generator=generator).chunk(tp_group.size())[tp_group.rank()].clone()
    return hidden, weight, torch.randint(0, VOCAB, (batch, length), generator=generator)


def run(function: Any, hidden: Tensor, weight: Tensor) -> Run:
    """The result of `function(hidden, weight)`, and the gradients of both."""
    hidden, weight = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    result = function(hidden, weight)
    weights = torch.randn(result.shape, generator=torch.Generator().manual_seed(5))
    torch.autograd.backward((result * weights).sum())
    assert hidden.grad is not None
    assert weight.grad is not None
    return result.detach(), hidden.grad, weight.grad


def assert_same(ours: Run, theirs: Run) -> None:
    for name, mine, other in zip(("values", "hidden gradient", "weight gradient"), ours, theirs, strict=True):
        assert_agree({name: mine}, {name: other})
        assert other.abs().max() > 0


def _same(checkout: str, tp: int, chunk_size: int) -> None:
    tp_group, _ = groups_of(tp)
    hidden, weight, tokens = tensors(LENGTH, BATCH, tp_group)
    tokens[0, 3] = VOCAB + 7  # outside of the vocabulary: 0, and the gradient of -logsumexp
    share = hidden.chunk(tp)[tp_group.rank()].contiguous()
    rows = len(weight)
    start, end = tp_group.rank() * rows, (tp_group.rank() + 1) * rows

    def by(function: Any, *between: Any) -> Any:
        return lambda hidden, weight: function(
            hidden, weight, *between, None, tokens, start, end, tp_group, False, None, chunk_size
        )

    with loaded(checkout, "nemo_rl", UTILS) as utils:
        theirs = utils.from_parallel_hidden_states_to_logprobs
        # 0.6.0 has one argument more, which it does not use.
        between = (None,) if "output_weight" in theirs.__code__.co_varnames[: theirs.__code__.co_argcount] else ()
        assert_same(
            run(by(from_parallel_hidden_states_to_logprobs), share, weight), run(by(theirs, *between), share, weight)
        )


@pytest.mark.parametrize("checkout", checkouts(NEMO_RL))
@pytest.mark.parametrize(("tp", "chunk_size"), [(1, 1), (1, 5), (2, 16), (2, 100)])
def test_the_function_gives_what_nemo_rls_gives(checkout: str, tp: int, chunk_size: int) -> None:
    run_on_ranks("0.19.2", tp, _same, checkout, tp, chunk_size)


def _padded_context_parallel(checkout: str) -> None:
    """NeMo RL's unfused path gathers log-probs over CP ranks and adds up the gradients; so does the shim."""
    tp_group, cp_group = groups_of(1, 2)
    hidden, weight, tokens = tensors(LENGTH, BATCH, tp_group)
    share = zigzag_split(hidden, 2, cp_group.rank(), dim=0)
    ends = {"vocab_start_index": 0, "vocab_end_index": VOCAB, "tp_group": tp_group, "cp_group": cp_group}
    with loaded(checkout, "nemo_rl", UTILS) as utils:
        theirs = run(
            lambda h, w: utils.from_parallel_logits_to_logprobs((h @ w.T).transpose(0, 1).contiguous(), tokens, **ends),
            share,
            weight,
        )
    ours = run(
        lambda h, w: from_parallel_hidden_states_to_logprobs(
            h, w, None, zigzag_split(tokens, 2, cp_group.rank()), **ends, chunk_size=3
        ),
        share,
        weight,
    )
    assert_same(ours, theirs)


def _packed_context_parallel(checkout: str) -> None:
    tp_group, cp_group = groups_of(1, 2)
    plan = plan_packing([11, 5, 7], cp_size=2, cp_rank=cp_group.rank())
    device = torch.device("cpu")
    bounds, params = plan.bounds(device), plan.packed_seq_params(device)
    hidden, weight, tokens = tensors(sum(plan.padded), 1, tp_group)
    share = split_packed_row(hidden.transpose(0, 1), bounds, cp_group).transpose(0, 1).contiguous()
    ends = {"vocab_start_index": 0, "vocab_end_index": VOCAB, "cp_group": cp_group}
    places = places_of(bounds, LENGTH, tokens.shape[1], None, None)
    with loaded(checkout, "nemo_rl", UTILS) as utils:
        theirs = run(
            lambda h, w: utils.from_parallel_logits_to_logprobs_packed_sequences(
                (h @ w.T).transpose(0, 1).contiguous(), tokens, bounds, LENGTH, group=tp_group, **ends
            ),
            share,
            weight,
        )

    def ours(h: Tensor, w: Tensor) -> Tensor:
        row = from_parallel_hidden_states_to_logprobs(
            h, w, None, split_packed_row(tokens, bounds, cp_group), tp_group=tp_group, packed_seq_params=params, **ends
        )
        return places.take(torch.nn.functional.pad(row, (0, 1)))

    assert_same(run(ours, share, weight), theirs)


@pytest.mark.parametrize("checkout", checkouts(NEMO_RL))
@pytest.mark.parametrize("case", [_padded_context_parallel, _packed_context_parallel], ids=["padded", "packed"])
def test_under_context_parallelism_it_gives_what_the_unfused_path_gives(checkout: str, case: Any) -> None:
    run_on_ranks("0.19.2", 2, case, checkout)


@on_ranks(1, release="0.19.2")
def test_wrong_arguments_are_named_and_inference_keeps_no_graph() -> None:
    tp_group, _ = groups_of(1)
    hidden, weight, tokens = tensors(LENGTH, BATCH, tp_group)
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


def _peak(length: int, chunk_size: int) -> int:
    tp_group, _ = groups_of(1)
    hidden = torch.randn(length, 1, 16).requires_grad_()
    weight = torch.randn(4_000, 16).requires_grad_()
    tokens = torch.randint(0, 4_000, (1, length))
    with peak_memory() as memory:
        result = from_parallel_hidden_states_to_logprobs(
            hidden, weight, None, tokens, 0, 4_000, tp_group, chunk_size=chunk_size
        )
        torch.autograd.backward(result.sum())
    parallel_state.destroy_model_parallel()
    return memory.peak - 4 * (hidden.numel() + weight.numel())


@on_ranks(1, release="0.19.2")
def test_the_chunk_size_bounds_the_memory() -> None:
    for length, chunk_size in ((64, 8), (512, 8), (512, 64)):
        logits = chunk_size * 4_000 * 4  # of one chunk in fp32
        assert _peak(length, chunk_size) <= logits + 200 * length + 20_000
