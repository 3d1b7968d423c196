"""The shim of SkyRL in one process: which token stands where, and every option against logits by hand."""

from typing import Any
from unittest import mock

import pytest
import torch
from harness.rounding import assert_close
from torch import Tensor
from torch.distributed import ProcessGroup

import mcore_unpatch.compat.skyrl as shim

WORDS, WIDTH = 30, 8
GROUP = ProcessGroup(0, 1)
BOUNDS = torch.tensor([0, 4, 8, 14], dtype=torch.int32)  # of three sequences, padded, in a row of 14
# Two real tokens of four, on the right; three of four, on the left; five of six, with a hole.
MASK = torch.tensor([[0, 0, 0, 0, 1, 1], [1, 1, 1, 0, 0, 0], [1, 0, 1, 1, 1, 1]])

PLACES: list[tuple[Any, Any, list[list[int]], list[list[int]]]] = [
    (None, None, [[0, 1, 2, 3, 4], [4, 5, 6, 7, 8], [8, 9, 10, 11, 12]], [[1, 1, 1, 0, 0]] * 2 + [[1] * 5]),
    (
        MASK,
        None,
        [[0, 0, 0, 0, 0], [4, 5, 6, 6, 6], [8, 8, 9, 10, 11]],
        [[0, 0, 0, 0, 1], [1, 1, 0, 0, 0], [1, 0, 1, 1, 1]],
    ),
    (MASK, [[4, 3], [6]], [[0, 1, 2, 3, 4], [8, 9, 10, 11, 12]], [[1, 1, 1, 0, 1], [1] * 5]),
    (None, [[2], [1, 5]], [[0, 1, 2, 3, 4], [4, 5, 6, 7, 8]], [[1, 0, 0, 0, 0], [0, 0, 0, 0, 1]]),
]


@pytest.mark.parametrize(("mask", "lengths", "token", "valid"), PLACES)
def test_which_token_of_the_row_stands_where(mask: Any, lengths: Any, token: Any, valid: Any) -> None:
    place, follows = shim.places_of(BOUNDS, 6, 14, mask, lengths)
    assert place.tolist() == token
    assert follows.tolist() == [[bool(one) for one in row] for row in valid]


def test_a_longer_batch_ends_with_the_row() -> None:
    """More positions than the row has tokens behind a sequence: nothing outside of it is read."""
    for lengths in (None, [[4, 4, 6]]):
        token, follows = shim.places_of(BOUNDS, 20, 14, None, lengths)
        assert int(token.max()) == 13
        assert follows.sum(1).tolist() == ([3, 3, 5] if lengths is None else [11])
    assert shim.places_of(BOUNDS, 4, 14, None, None)[1].tolist() == [[True] * 3] * 3
    token, follows = shim.places_of(BOUNDS, 8, 14, torch.arange(8) < torch.tensor([[4], [4], [6]]), None)
    assert token.amax(1).tolist() == [3, 7, 13]
    assert follows.sum(1).tolist() == [3, 3, 5]


@pytest.mark.parametrize("lengths", [[[4, 4]], [[4], [4], [6, 1]], []])
def test_as_many_sub_sequences_as_there_are(lengths: list[list[int]]) -> None:
    given = sum(map(len, lengths))
    with pytest.raises(ValueError, match=f"expected 3 sub-sequences as in cu_seqlens_padded, got {given}"):
        shim.places_of(BOUNDS, 6, 14, None, lengths)


def tensors(*shape: int) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, weight, target."""
    draw = torch.Generator().manual_seed(4)
    hidden, weight = (torch.randn(*size, WIDTH, generator=draw).requires_grad_() for size in (shape, (WORDS,)))
    return hidden, weight, torch.randint(0, WORDS, shape, generator=draw)


def by_hand(hidden: Tensor, weight: Tensor, target: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Log-probs of the tokens after each, and entropy, `[b, s]`."""
    log_p = (hidden.detach() @ weight.detach().T / temperature).log_softmax(-1)
    return log_p.gather(-1, target.roll(-1, 1)[..., None]).squeeze(-1), -(log_p.exp() * log_p).sum(-1)


def test_fewer_hidden_states_than_tokens() -> None:
    hidden, weight, target = tensors(2, 6)
    with pytest.raises(ValueError, match=r"at least the 6 positions of target over 1 .* ranks, got \[2, 5, 8\]"):
        shim.from_parallel_hidden_to_logprobs(hidden[:, :5], weight, target, 0, WORDS, GROUP)


@pytest.mark.parametrize(("first", "last"), [(1, WORDS), (0, WORDS - 1)])
def test_the_range_of_the_vocabulary_is_that_of_the_weight(first: int, last: int) -> None:
    hidden, weight, target = tensors(1, 14)
    with pytest.raises(ValueError, match=rf"expected \(0, {WORDS}\)"):
        shim.from_parallel_hidden_to_logprobs(hidden, weight, target, first, last, GROUP)
    with pytest.raises(ValueError, match=rf"expected \(0, {WORDS}\)"):
        shim.from_parallel_hidden_to_logprobs_packed_sequences(hidden, weight, target, BOUNDS, 6, first, last, GROUP)


def test_a_call_for_inference_keeps_no_graph() -> None:
    hidden, weight, target = tensors(1, 14)
    for only in (False, True):
        padded = shim.from_parallel_hidden_to_logprobs(hidden, weight, target, 0, WORDS, GROUP, only)
        packed = shim.from_parallel_hidden_to_logprobs_packed_sequences(
            hidden, weight, target, BOUNDS, 6, 0, WORDS, GROUP, only
        )
        assert padded.requires_grad == packed.requires_grad == (not only)


LOSS = torch.tensor([[1.0, 0.0], [2.0, 0.5], [0.0, 1.0]])


@pytest.mark.parametrize("weights", [None, LOSS, LOSS.bool(), torch.zeros(3, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_mean_entropy_of_the_last_positions(weights: Tensor | None, dtype: torch.dtype) -> None:
    """A metric without a gradient, and the part of a loss with one; 0 where nothing counts."""
    hidden, weight, target = (one.detach().to(dtype) if one.is_floating_point() else one for one in tensors(1, 14))
    hidden.requires_grad_()
    with mock.patch.object(shim, "vocab_pass", wraps=shim.vocab_pass) as spy:
        mean, part = shim.from_parallel_hidden_to_entropy_packed_sequences(
            hidden, weight, BOUNDS, 6, 2, MASK, weights, None, GROUP, temperature=0.7
        )
    token, follows = shim.places_of(BOUNDS, 6, 14, MASK, None)
    share = torch.zeros(3, 5)
    share[:, -2:] = 1.0 if weights is None else weights.float()
    share = share * follows
    entropy = by_hand(hidden.float(), weight.float(), target, 0.7)[1][0, token]
    expected = (entropy * share).sum() / share.sum().clamp(min=1.0)
    for found in (mean, part):
        assert (found.dtype, found.shape) == (torch.float32, ())
        assert_close(found.detach(), expected, dtype)
    assert (mean.requires_grad, part.requires_grad) == (False, True)
    assert spy.call_args.kwargs["max_rows"] == 6
