"""The same bits for the same row, whatever stands beside it; and for the same call, gradients included."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from fused_head.oracle import linear_logprob, make_inputs, results
from harness import on_ranks
from harness.rounding import assert_close
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mcore_unpatch.compat import vocab_pass
from mcore_unpatch.compat.fused_head import torch_backend
from mcore_unpatch.compat.fused_head.problem import Problem
from mcore_unpatch.compat.fused_head.torch_backend import TorchBackend

SHAPES = [(70, 64, 400), (66, 96, 133), (33, 17, 50)]  # two tiles of 64 rows, or one that is not full


def bits(hidden: Tensor, weight: Tensor, labels: Tensor, **options: Any) -> list[Tensor]:
    options |= {"batch_invariant": True, "backend": "torch"}
    out = vocab_pass(hidden, weight, labels, entropy=True, topk=3, sum_pi_squared=True, **options)
    found = (out.logprobs, out.entropy, out.logsumexp, out.sum_pi_squared, out.topk_logits)
    return [value for value in found if value is not None]


def neighbours(rows: int) -> list[Tensor]:
    """Alone, in pairs, turned around, shuffled, in the middle of the batch, twice."""
    shuffled = torch.randperm(rows, generator=torch.Generator().manual_seed(4))
    whole = torch.arange(rows)
    return [whole[:1], whole[7:9], whole.flip(0), shuffled, whole[3:-2], torch.cat([whole, whole])]


def is_invariant(shape: tuple[int, int, int], dtype: torch.dtype, group: Any = None, **options: Any) -> None:
    inputs = make_inputs(*shape, dtype)
    weight = inputs.weight if group is None else inputs.weight.tensor_split(group.size())[group.rank()].contiguous()
    whole = bits(inputs.hidden, weight, inputs.labels, tp_group=group, **options)
    for chosen in neighbours(shape[0]):
        some = bits(inputs.hidden[chosen], weight, inputs.labels[chosen], tp_group=group, **options)
        assert all(torch.equal(a, b[chosen]) for a, b in zip(some, whole, strict=True))
    mask = torch.arange(shape[0]) % 3 > 0
    masked = bits(inputs.hidden, weight, inputs.labels, mask=mask, tp_group=group, **options)
    assert all(torch.equal(a[mask], b[mask]) for a, b in zip(masked, whole, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_whatever_rows_stand_beside(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    is_invariant(shape, dtype)
    if dtype == torch.float32 or shape == SHAPES[-1]:  # a matrix library may make us go row by row: that takes long
        is_invariant(shape, dtype, temperature=0.7, tile_bytes=40_000)


def test_two_threads() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        is_invariant(SHAPES[0], torch.float32)
    finally:
        torch.set_num_threads(before)


@on_ranks(2, release="0.19.2")
def test_two_ranks() -> None:
    is_invariant(SHAPES[0], torch.float32, dist.group.WORLD, temperature=0.7)


def test_one_row_at_a_time_where_the_product_depends_on_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_backend, "_found", {})
    monkeypatch.setattr(torch_backend, "_same_everywhere", lambda *_: False)
    is_invariant(SHAPES[2], torch.float32)


def test_a_product_that_depends_on_the_place_is_noticed() -> None:
    """Stands for a matrix library that adds up the last rows of a tile in another order."""
    inputs, tried = make_inputs(8, 16, 40), []

    def fold(problem: Problem, size: int | None) -> Any:
        tried.append(size)
        stats = TorchBackend().fold(problem, size)
        stats.row_max[4:] += 1e-3
        return stats

    problem = Problem(inputs.hidden, inputs.weight, columns=40, entropy=True, tile_bytes=123_456, batch_invariant=True)
    assert torch_backend.rows_of_a_tile(problem, fold) == 4
    assert tried == [64, 16, 4]


def test_every_kind_of_product_is_tried_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_backend, "_found", {})
    inputs, tried = make_inputs(8, 16, 40), []

    def fold(problem: Problem, size: int | None) -> Any:
        tried.append(size)
        return TorchBackend().fold(problem, size)

    one = Problem(inputs.hidden, inputs.weight, columns=40, entropy=True, tile_bytes=123_456, batch_invariant=True)
    kinds = [one, replace(one, hidden=inputs.hidden.bfloat16()), replace(one, weight=inputs.weight.bfloat16())]
    kinds += [replace(one, weight=inputs.weight[:30], columns=30), replace(one, tile_bytes=99_999)]
    kinds += [
        replace(one, entropy=False),
        replace(one, sum_pi_squared=True),
        replace(one, topk=2),
        replace(one, scale=0.5),
    ]
    for kind in kinds:
        before = len(tried)
        torch_backend.rows_of_a_tile(kind, fold)
        asked = len(tried)
        assert asked > before
        torch_backend.rows_of_a_tile(kind, fold)
        assert len(tried) == asked
    for scale in (0.7, torch.ones(8), torch.full((8,), 0.5)):  # scaled is one kind, by whatever
        torch_backend.rows_of_a_tile(replace(one, scale=scale), fold)
    assert len(tried) == asked


@pytest.mark.parametrize("batch_invariant", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_same_call_gives_the_same_bits(dtype: torch.dtype, batch_invariant: bool) -> None:
    inputs = make_inputs(150, 64, 1000, dtype)
    first, second = (results(linear_logprob, inputs, batch_invariant=batch_invariant) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_numbers_are_those_without_it() -> None:
    inputs = make_inputs(150, 64, 1000)
    ours, plain = (results(linear_logprob, inputs, batch_invariant=on) for on in (True, False))
    for name in plain:
        assert_close(ours[name], plain[name])


class Products(TorchDispatchMode):
    """The shapes of all products."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: Counter[tuple[torch.Size, torch.Size]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if str(func).startswith(("aten.mm", "aten.addmm")):
            self.shapes[(args[-2].shape, args[-1].shape)] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("rows", [33, 128, 150])
def test_the_backward_makes_logits_by_the_products_of_the_forward(rows: int) -> None:
    """Other products may round otherwise, and where p is nearly 1, `1 - p` then keeps no digit."""
    inputs = make_inputs(rows, 16, 1000)
    hidden = inputs.hidden.requires_grad_()
    options: Any = {"backend": "torch", "batch_invariant": True, "tile_bytes": 100_000}
    linear_logprob(hidden, inputs.weight, inputs.labels, **options)  # what is tried once, is tried here
    with Products() as forward:
        log_probs, _ = linear_logprob(hidden, inputs.weight, inputs.labels, **options)
    with Products() as backward:
        log_probs.sum().backward()
    assert forward.shapes <= backward.shapes


def test_no_rows_with_a_temperature_for_each() -> None:
    hidden, weight = torch.empty(0, 16, requires_grad=True), torch.randn(40, 16, requires_grad=True)
    empty = torch.empty(0, dtype=torch.long)
    log_probs, _ = linear_logprob(hidden, weight, empty, temperature=torch.empty(0), batch_invariant=True)
    log_probs.sum().backward()
    assert log_probs.shape == (0,)
    assert weight.grad is not None
    assert weight.grad.abs().max() == 0
