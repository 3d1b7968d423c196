"""The fused kernel of `linear_kl` against float64: by Triton's interpreter, or on a GPU. Run by test_interpreted."""

from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from fused_head.test_linear_kl import KINDS, VOCAB, heads, plain, results
from harness import run_on_ranks
from harness.rounding import assert_close

from mcore_unpatch.compat import linear_kl
from mcore_unpatch.compat.fused_head.linear_kl import Divergence, Head, Pair, run_kl
from mcore_unpatch.compat.fused_head.problem import NO_LOGIT, Problem, WeightGradBuffer
from mcore_unpatch.compat.fused_head.settings import LogprobQuery
from mcore_unpatch.compat.fused_head.triton import launch
from mcore_unpatch.compat.fused_head.triton.pair_kernels import TritonPair

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EACH = torch.rand(150, generator=torch.Generator().manual_seed(1)).to(DEVICE) + 0.5


@pytest.fixture(autouse=True, params=[True, False], ids=["tma", "pointers"])
def _no_way_round(request: pytest.FixtureRequest) -> Any:
    with (
        mock.patch.object(Pair, "stats", side_effect=AssertionError("torch")),
        mock.patch.object(launch, "has_tma", return_value=request.param),
    ):
        yield


def check(kind: str, beta: float, widths: tuple[int, int] = (8, 16), **options: Any) -> None:
    """Zeros fill the hidden states up to `widths`, multiples of 8."""
    tensors = [x.to(DEVICE) for x in heads(torch.float16, 150, VOCAB + 300)]
    tensors = [
        torch.nn.functional.pad(x, (0, width - x.shape[1]))
        for x, width in zip(tensors, (widths[0], widths[0], widths[1], widths[1]), strict=True)
    ]
    mask, temperature = options.get("mask"), options.get("temperature", 1.0)
    exact = [x.double() for x in tensors]
    truth = results(lambda leaves: plain(leaves, kind, beta, temperature, mask), exact)
    call: dict[str, Any] = {"kind": kind, "beta": beta, "vocab_size": VOCAB} | options
    found = results(lambda leaves: linear_kl(*leaves, **call), tensors)
    # What is kept is stored in 16 bits, and JSD's value is made of it. In the reverse KL the mean distance is taken off
    # the distance that was rounded, which may leave half of it.
    kept = "keep_bytes" in options
    for name, value in truth.items():
        exact = name == "value" and not (kept and kind == "jsd")
        assert_close(found[name], value, torch.float32 if exact else torch.float16, stores=1 + 2 * kept)


PART, WHOLE = 128, 400  # of the columns


@pytest.mark.parametrize(
    ("kind", "beta", "columns"), [*((*one, PART) for one in KINDS), ("reverse", 0.5, WHOLE), ("jsd", 0.1, WHOLE)]
)
def test_kept_logits(kind: str, beta: float, columns: int) -> None:
    keep_bytes = 150 * (4 * columns + 8 * -(-columns // 128) + 200 * (columns == WHOLE))
    check(kind, beta, keep_bytes=keep_bytes, mask=torch.arange(150, device=DEVICE) % 3, temperature=0.7)
    warmer = torch.linspace(0.5, 1.5, 150, device=DEVICE)
    check(kind, beta, keep_bytes=keep_bytes, temperature=warmer, tile_bytes=90_000)


@pytest.mark.parametrize(("kind", "beta"), KINDS)
def test_kept_logits_of_heads_that_are_close(kind: str, beta: float) -> None:
    """The gradient is made of differences; it is as exact as the differences of float64."""
    draw = torch.Generator().manual_seed(2)
    student, weight = (torch.randn(n, 16, generator=draw, dtype=torch.float16) / 2 for n in (70, VOCAB + 300))
    moved = weight + 0.01 * torch.randn(VOCAB + 300, 16, generator=draw, dtype=torch.float16)
    tensors = [x.to(DEVICE) for x in (student, moved, student, weight)]
    truth = results(lambda leaves: plain(leaves, kind, beta, 1.0, None), [x.double() for x in tensors])
    found = results(
        lambda leaves: linear_kl(*leaves, kind=kind, beta=beta, vocab_size=VOCAB, keep_bytes=1 << 30), tensors
    )
    for name in ("student", "student weight"):
        assert_close(found[name], truth[name], torch.float16, stores=2)


def test_a_second_backward_makes_the_logits_again() -> None:
    leaves = [torch.nn.functional.pad(x, (0, 16 - x.shape[1])).to(DEVICE) for x in heads(torch.float16, 40, 300)]
    student = [x.requires_grad_() for x in leaves[:2]]
    value = linear_kl(*student, *leaves[2:], kind="reverse", keep_bytes=1 << 30).sum()
    first = torch.autograd.grad(value, student, retain_graph=True)
    for again, once in zip(torch.autograd.grad(value, student), first, strict=True):
        assert_close(again, once.double(), torch.float16, stores=2)


@pytest.mark.parametrize(("kind", "beta"), KINDS)
def test_values_and_gradients(kind: str, beta: float) -> None:
    check(kind, beta, mask=torch.arange(150, device=DEVICE) % 3, temperature=0.7)
    check(kind, beta, temperature=EACH, tile_bytes=90_000)


def test_the_backend_that_a_processor_asks_for() -> None:
    hidden, weight = (torch.ones(n, 16, dtype=torch.float16, device=DEVICE) for n in (3, 300))
    with pytest.raises(AssertionError, match="torch"):
        run_kl((hidden, weight, hidden, weight), Divergence("forward"), LogprobQuery(backend="torch"))


def test_hidden_sizes_in_no_proportion() -> None:
    check("jsd", 0.3, (192, 64))


@pytest.mark.parametrize("kind", ["forward", "jsd"])
def test_no_rows(kind: Any) -> None:
    tensors = [x.to(DEVICE) for x in heads(torch.float16, 0, 300)]
    leaves = [torch.nn.functional.pad(x, (0, 16 - x.shape[1])).requires_grad_() for x in tensors]
    out = linear_kl(*leaves, kind=kind)
    assert out.shape == (0,)
    out.sum().backward()
    assert all(leaf.grad is not None and not leaf.grad.any() for leaf in leaves)


@pytest.mark.parametrize("kind", ["forward", "jsd"])
def test_a_shard_without_columns(kind: Any) -> None:
    """As on a rank that has nothing but padding: nothing to sum up, and a weight without gradient."""
    hidden, weight = (x.to(DEVICE) for x in heads(torch.float16, 5, 300)[:2])
    problem = Problem(hidden, weight, columns=0, tile_bytes=512 << 20)
    pair = TritonPair(Head(problem), Head(problem))
    stats = pair.stats(Divergence(kind))
    assert (stats[:2] == NO_LOGIT).all()
    assert not stats[2:].any()
    assert not pair.sums(Divergence("jsd")).any()
    buffer, parts = torch.ones_like(weight), []
    zeros = torch.zeros(5, device=DEVICE)
    pair.backward(Divergence(kind), zeros, zeros, parts.append, WeightGradBuffer(buffer, accumulate=False))
    assert not parts[0].any()
    assert not buffer.any()


def on_shards() -> None:
    """Runs on each rank: its shard of both heads, against float64 on the whole vocabulary."""
    tensors = [torch.nn.functional.pad(x, (0, 16 - x.shape[1])) for x in heads(torch.float16, 140, 100)]
    truth = results(lambda leaves: plain(leaves, "jsd", 0.5, 1.0, None), [x.double() for x in tensors])
    half = lambda x: x.chunk(2)[dist.get_rank()]  # noqa: E731
    truth |= {name: half(truth[name]) for name in ("student weight", "teacher weight")}
    local = [tensors[0], half(tensors[1]), tensors[2], half(tensors[3])]
    with mock.patch.object(Pair, "stats", side_effect=AssertionError("torch")):
        found = results(
            lambda leaves: linear_kl(*leaves, kind="jsd", vocab_size=VOCAB, tp_group=dist.group.WORLD), local
        )
    for name, value in truth.items():
        assert_close(found[name], value, torch.float32 if name == "value" else torch.float16)


@pytest.mark.skipif(DEVICE != "cpu", reason="one GPU is one rank")
def test_two_ranks() -> None:
    run_on_ranks("0.19.2", 2, on_shards)
