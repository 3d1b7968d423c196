"""Tokens that take no part, row by row, and statistics of the logits themselves."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from fused_head.oracle import Results, grad_of, make_inputs
from harness import on_ranks
from harness.rounding import assert_agree, assert_close
from torch import Tensor

from mcore_unpatch.compat import vocab_pass

TOKENS, WIDTH, VOCAB = 30, 16, 100


def keep_mask(labels: Tensor) -> Tensor:
    """A few tokens of each row; all, one half, the label alone, all of these but the label, none but the label."""
    keep = torch.rand(TOKENS, VOCAB, generator=torch.Generator().manual_seed(1)) < 0.1
    keep[0] = True
    keep[1] = torch.arange(VOCAB) < VOCAB // 2
    keep[2] = False
    keep[2, labels[2]] = True
    keep[3, labels[3]] = False
    keep[4] = False
    return keep


def plain(hidden: Tensor, weight: Tensor, labels: Tensor, keep: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    allowed = keep.scatter(1, labels[:, None], True)
    log_p = (hidden @ weight.t() / 0.7).masked_fill(~allowed, -1e30).log_softmax(-1)
    kept = torch.ones(TOKENS, dtype=torch.bool) if mask is None else mask != 0
    entropy = -(log_p.exp() * log_p).sum(1)
    return log_p.gather(1, labels[:, None]).squeeze(1).where(kept, 0), entropy.where(kept, 0)


@pytest.mark.parametrize("labelled", [False, True])
def test_a_token_that_is_asked_about_takes_no_part_for_that(labelled: bool) -> None:
    """The label always counts; other tokens, whose log-probs are asked for, only where the mask keeps them."""
    hidden, weight = torch.randn(3, 4, dtype=torch.float64), torch.randn(7, 4, dtype=torch.float64)
    labels, ids = torch.tensor([0, 1, 2]), torch.tensor([[1, 5], [4, 6], [5, 3]])
    keep = torch.zeros(3, 7, dtype=torch.bool).index_fill_(1, torch.tensor([3, 4]), True)
    out = vocab_pass(hidden, weight, labels if labelled else None, token_ids=ids, keep_mask=keep)
    allowed = keep.scatter(1, labels[:, None], True) if labelled else keep
    level = (hidden @ weight.t()).masked_fill(~allowed, -torch.inf).logsumexp(-1)
    assert_close(out.logsumexp, level)


def everything(function: Any, hidden: Tensor, weight: Tensor) -> Results:
    hidden, weight = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    log_probs, entropy = function(hidden, weight)
    draw = torch.Generator().manual_seed(2)
    (log_probs * torch.randn(TOKENS, generator=draw) + entropy * torch.randn(TOKENS, generator=draw)).sum().backward()
    gradients = {"hidden": grad_of(hidden), "weight": grad_of(weight)}
    return {"log_probs": log_probs.detach(), "entropy": entropy.detach(), **gradients}


def check(dtype: torch.dtype, group: Any = None, mask: Tensor | None = None, **options: Any) -> None:
    inputs = make_inputs(TOKENS, WIDTH, VOCAB, dtype)
    keep = whole = keep_mask(inputs.labels)
    exact = inputs.in_float64()
    truth = dict(everything(lambda h, w: plain(h, w, inputs.labels, whole, mask), exact.hidden, exact.weight))
    weight = inputs.weight
    if group is not None:
        weight, truth["weight"] = (x.chunk(group.size())[group.rank()] for x in (weight, truth["weight"]))
        keep = keep.chunk(group.size(), 1)[group.rank()]
    options |= {"keep_mask": keep, "temperature": 0.7, "tp_group": group, "mask": mask}

    def ours(hidden: Tensor, weight: Tensor) -> tuple[Tensor | None, Tensor | None]:
        out = vocab_pass(hidden, weight, inputs.labels, entropy=True, **options)
        return out.logprobs, out.entropy

    assert_agree(everything(ours, inputs.hidden, weight), truth, dtype)


@pytest.mark.parametrize("tile_bytes", [None, 3_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_log_probs_and_entropy_over_what_is_kept(dtype: torch.dtype, tile_bytes: int | None) -> None:
    check(dtype, tile_bytes=tile_bytes)
    check(dtype, tile_bytes=tile_bytes, mask=torch.arange(TOKENS) % 3, batch_invariant=True)


@on_ranks(2, release="0.19.2")
def test_two_ranks() -> None:
    check(torch.float32, dist.group.WORLD)


def test_a_row_that_keeps_nothing_is_no_number() -> None:
    inputs = make_inputs(4, WIDTH, VOCAB)
    keep = torch.ones(4, VOCAB, dtype=torch.bool)
    keep[2] = False
    out = vocab_pass(inputs.hidden, inputs.weight, keep_mask=keep, entropy=True)
    assert out.entropy is not None
    assert out.entropy.isnan().tolist() == [False, False, True, False]


def test_masks_of_another_kind() -> None:
    inputs = make_inputs(4, WIDTH, VOCAB)
    with pytest.raises(TypeError, match=r"keep_mask: expected a tensor of booleans, got torch.float32"):
        vocab_pass(inputs.hidden, inputs.weight, keep_mask=torch.ones(4, VOCAB))
    with pytest.raises(TypeError, match=r"keep_mask: expected a tensor of booleans, got list"):
        vocab_pass(inputs.hidden, inputs.weight, keep_mask=[True])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"keep_mask: expected shape \[4\] \+ \[100\], this rank"):
        vocab_pass(inputs.hidden, inputs.weight, keep_mask=torch.ones(4, 50, dtype=torch.bool))


def stats_agree(group: Any = None, vocab_size: int | None = None, **options: Any) -> None:
    inputs = make_inputs((5, 6), WIDTH, VOCAB)
    exact = inputs.in_float64()
    logits = (exact.hidden @ exact.weight.t())[..., :vocab_size] / 0.7
    truth = {"min": logits.amin(-1), "max": logits.amax(-1), "mean": logits.mean(-1), "norm": logits.norm(dim=-1)}
    truth = {f"logit_{name}": value for name, value in truth.items()}
    weight = inputs.weight if group is None else inputs.weight.chunk(group.size())[group.rank()]
    options |= {"temperature": 0.7, "tp_group": group, "vocab_size": vocab_size}
    out = vocab_pass(inputs.hidden.requires_grad_(), weight, logit_stats=True, **options)
    found = {name: value for name, value in vars(out).items() if name in truth}
    assert not any(value.requires_grad for value in found.values())
    assert_agree(found, truth, sums=VOCAB)


@pytest.mark.parametrize("options", [{}, {"vocab_size": 90}, {"tile_bytes": 3_000}, {"batch_invariant": True}], ids=str)
def test_min_max_mean_and_norm_of_the_logits(options: dict[str, Any]) -> None:
    stats_agree(**options)


@on_ranks(2, release="0.19.2")
def test_statistics_on_two_ranks() -> None:
    stats_agree(dist.group.WORLD)
    stats_agree(dist.group.WORLD, vocab_size=77)


def test_the_other_backend_is_not_taken_for_it() -> None:
    inputs = make_inputs(4, WIDTH, VOCAB)
    with pytest.warns(
        RuntimeWarning, match="backend='triton' cannot run here, using 'torch': it does not support logit_stats"
    ):
        vocab_pass(inputs.hidden, inputs.weight, logit_stats=True, backend="triton")
