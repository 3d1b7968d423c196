"""How large a tile may be, in exact numbers: what a cell, a row and a column of it cost, and how a problem is cut."""

from typing import Any

import pytest
import torch

from mcore_unpatch.compat.fused_head import problem as module, torch_backend
from mcore_unpatch.compat.fused_head.problem import (
    Problem,
    Tiles,
    WeightGradBuffer,
    default_tile_bytes,
    plan_tiles,
    tile_cost,
)

WIDTH, VECTORS = 10, 64  # eight vectors of 8 bytes beside each row
FULL, HALF = torch.float32, torch.bfloat16


def problem(hidden: torch.dtype = FULL, weight: torch.dtype = FULL, **asked: Any) -> Problem:
    return Problem(
        torch.zeros(3, WIDTH, dtype=hidden),
        torch.zeros(5, WIDTH, dtype=weight),
        **{"columns": 5, "tile_bytes": 1000, **asked},
    )


@pytest.mark.parametrize(
    ("of", "keeps", "cost"),
    [
        (problem(), False, (8, VECTORS, 40)),
        (problem(torch.float64, torch.float64), False, (16, VECTORS, 80)),
        (problem(keep_mask=torch.ones(3, 5, dtype=torch.bool)), False, (10, VECTORS, 40)),
        (problem(logit_stats=True), False, (13, VECTORS, 40)),
        (problem(topk=3), False, (8, VECTORS + 3 * 32, 40)),
        (problem(rows=torch.arange(2)), False, (8, VECTORS + 40, 40)),
        (problem(batch_invariant=True), False, (8, VECTORS + 40, 40)),
        (problem(HALF, HALF), False, (8, VECTORS + 40, 120)),  # cast to 32 bits
        (problem(HALF, HALF), True, (8, VECTORS, 80)),
        (problem(HALF, FULL), False, (8, VECTORS + 40, 40)),
        (problem(FULL, HALF), True, (8, VECTORS + 20, 80)),
        (problem(FULL, HALF, rows=torch.arange(2)), False, (8, VECTORS + 100, 120)),
    ],
)
def test_what_a_tile_costs(of: Problem, keeps: bool, cost: tuple[int, int, int]) -> None:
    assert tile_cost(of, keeps) == cost


@pytest.mark.parametrize(
    ("rows", "columns", "budget", "tile"),
    [
        (4, 1000, 10**9, (4, 1000)),
        (0, 0, 10**9, (1, 1)),
        (10, 1000, 60_100, (10, 1000)),  # just enough: 10 rows of 10 bytes, 1,000 columns of 10 + 10 * 5
        (10, 1000, 60_099, (10, 896)),  # a width that a GPU likes
        (10, 1000, 10 * 10 + 256 * 60, (10, 256)),
        (100, 1000, 100 * 10 + 256 * 510 - 1, (49, 512)),  # wider with fewer rows
        (10, 200, 10 * 10 + 200 * 60, (10, 200)),
        (100, 1000, 32 * 10 + 32 * 170, (32, 32)),
        (100, 1000, 32 * 10 + 32 * 170 - 1, (100, 1)),
        (10, 1000, 25, (1, 1)),
    ],
)
def test_how_a_problem_is_cut(rows: int, columns: int, budget: int, tile: tuple[int, int]) -> None:
    assert plan_tiles(rows, columns, (5, 10, 10), budget) == tile


def test_less_than_one_cell_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^tile_bytes: expected at least 25 for these tensors .*, got 24$"):
        plan_tiles(10, 1000, (5, 10, 10), 24)


def test_the_size_that_nobody_asked_for() -> None:
    assert [default_tile_bytes(kind) for kind in ("cpu", "cuda", "xpu")] == [16 << 20, 512 << 20, 512 << 20]


@pytest.mark.parametrize(
    ("buffer", "accumulate", "row_tiles", "apart"),
    [
        (FULL, True, 2, False),
        (HALF, False, 1, False),
        (HALF, True, 1, True),
        (HALF, False, 2, True),
        (torch.float16, False, 1, True),
    ],
)
def test_where_the_gradient_is_added_up(buffer: torch.dtype, accumulate: bool, row_tiles: int, apart: bool) -> None:
    """Beside the buffer where that would round more than once; operands are in 16 bits here."""
    tiles = Tiles(problem(HALF, HALF), HALF)
    assert tiles.sums_apart(None, row_tiles) is False
    assert tiles.sums_apart(WeightGradBuffer(torch.zeros(5, WIDTH, dtype=buffer), accumulate), row_tiles) is apart


@pytest.mark.parametrize("widens", [False, True])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("operands", [FULL, HALF])
def test_a_product_is_added_to_what_is_there_or_takes_its_place(
    operands: torch.dtype, accumulate: bool, widens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operands of 16 bits too, as a GPU has them, with a torch whose product gives 32 bits of them or not."""
    product = torch.mm

    def mm(a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype | None = None, **given: Any) -> torch.Tensor:
        assert (out_dtype is not None) is (widens and operands is HALF)
        return product(a.to(out_dtype), b.to(out_dtype)) if out_dtype else product(a, b, **given)

    monkeypatch.setattr(module, "product_widens", lambda *_: widens)
    monkeypatch.setattr(torch, "mm", mm)
    a, b = torch.arange(6.0).view(2, 3), torch.arange(6.0).view(3, 2)
    out = torch.full((2, 2), 7.0)
    torch_backend.TorchTiles(problem()).multiply(out, a.to(operands), b.to(operands), accumulate)
    assert torch.equal(out, a @ b + 7 * accumulate)
