"""More statistics of the same pass: log-probs of given ids and the sum of squared probabilities, gradients and all."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from fused_head.oracle import Results, grad_of, make_inputs
from harness import on_ranks
from harness.rounding import assert_agree
from torch import Tensor

from mcore_unpatch.compat import vocab_pass

TOKENS, WIDTH, VOCAB, IDS = 30, 16, 100, 7


def token_ids() -> Tensor:
    """Random ids; some rows name a token twice, the padding of the vocabulary, or nothing."""
    ids = torch.randint(0, 90, (TOKENS, IDS), generator=torch.Generator().manual_seed(1))
    ids[0, 1] = ids[0, 0]
    ids[1, 2], ids[2, 3], ids[3, 4] = -100, 95, 10**12
    return ids


def plain(hidden: Tensor, weight: Tensor, ids: Tensor, temperature: Any, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    divisor = temperature[:, None] if isinstance(temperature, Tensor) else temperature
    log_p = (hidden @ weight[:90].t() / divisor).log_softmax(-1)
    known = (ids >= 0) & (ids < 90)
    kept = torch.ones(len(ids), dtype=torch.bool) if mask is None else mask != 0
    at_ids = log_p.gather(1, ids.where(known, 0)).where(known & kept[:, None], 0)
    return at_ids, log_p.exp().square().sum(1).where(kept, 0)


def everything(function: Any, hidden: Tensor, weight: Tensor) -> Results:
    hidden, weight = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    at_ids, squares = function(hidden, weight)
    draw = torch.Generator().manual_seed(2)
    ids_grad, squares_grad = torch.randn(at_ids.shape, generator=draw), torch.randn(TOKENS, generator=draw) * 20
    ((at_ids * ids_grad).sum() + (squares * squares_grad).sum()).backward()
    return {"ids": at_ids.detach(), "squares": squares.detach(), "hidden": grad_of(hidden), "weight": grad_of(weight)}


def check(dtype: torch.dtype, group: Any = None, **options: Any) -> None:
    inputs, ids = make_inputs(TOKENS, WIDTH, VOCAB, dtype), token_ids()
    mask, temperature = options.get("mask"), options.get("temperature", 1.0)
    truth = dict(
        everything(lambda h, w: plain(h, w, ids, temperature, mask), inputs.hidden.double(), inputs.weight.double())
    )
    weight = inputs.weight
    if group is not None:
        weight, truth["weight"] = (x.chunk(group.size())[group.rank()] for x in (weight, truth["weight"]))

    def ours(hidden: Tensor, weight: Tensor) -> tuple[Tensor | None, Tensor | None]:
        out = vocab_pass(hidden, weight, token_ids=ids, sum_pi_squared=True, vocab_size=90, tp_group=group, **options)
        return out.token_logprobs, out.sum_pi_squared

    assert_agree(everything(ours, inputs.hidden, weight), truth, dtype)


@pytest.mark.parametrize("tile_bytes", [None, 3_000])
def test_values_and_gradients(tile_bytes: int | None) -> None:
    temperature = torch.rand(TOKENS, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) + 0.5
    check(torch.float64, tile_bytes=tile_bytes)
    check(torch.float64, tile_bytes=tile_bytes, temperature=temperature, mask=torch.arange(TOKENS) % 3)
    check(torch.float32, tile_bytes=tile_bytes, temperature=0.7)


@on_ranks(2, release="0.19.2")
def test_two_ranks() -> None:
    check(torch.float64, dist.group.WORLD, temperature=0.7)


def test_no_ids() -> None:
    inputs = make_inputs(4, WIDTH, VOCAB)
    out = vocab_pass(inputs.hidden, inputs.weight, token_ids=torch.zeros(4, 0, dtype=torch.int64))
    assert out.token_logprobs is not None
    assert out.token_logprobs.shape == (4, 0)


def test_ids_of_another_shape() -> None:
    inputs = make_inputs(4, WIDTH, VOCAB)
    with pytest.raises(ValueError, match=r"token_ids: expected shape \[4\] \+ \[k\] to match hidden"):
        vocab_pass(inputs.hidden, inputs.weight, token_ids=inputs.labels)
