"""How work is cut: splits of a forward launch, and tiles within `tile_bytes`. No kernel runs."""

import itertools
import random
from unittest import mock

import pytest
import torch

pytest.importorskip("triton")

from mcore_unpatch.compat.fused_head.problem import Problem, WeightGradBuffer
from mcore_unpatch.compat.fused_head.torch_backend import BLOCK_ROWS, least_tile_bytes
from mcore_unpatch.compat.fused_head.triton import launch
from mcore_unpatch.compat.fused_head.triton.backend import TritonTiles
from mcore_unpatch.compat.fused_head.triton.grad_kernel import padded

HALF = torch.bfloat16
DEFAULT = 512 << 20


def blocks_visited(
    row_blocks: int, column_blocks: int, height: int, splits: int, segment: int
) -> list[tuple[int, int]]:
    """Row and column of every block that the programs of a forward launch take, by the kernel's arithmetic."""
    segments = -(-column_blocks // segment)
    visited = []
    for program in range(height * splits):
        for row in range(program % height, row_blocks, height):
            for part in range(program // height, segments, splits):
                first = part * segment
                visited += [(row, column) for column in range(first, min(first + segment, column_blocks))]
    return visited


@pytest.mark.parametrize("rows", [1, 128, 129, 1000, 1664, 4000])
@pytest.mark.parametrize("columns", [1, 256, 257, 5000, 17_000])
def test_splits_cover_every_block_once_within_the_multiprocessors(rows: int, columns: int) -> None:
    cpu = torch.device("cpu")
    row_blocks, column_blocks = launch.blocks(rows, columns, cpu)
    every_block = list(itertools.product(range(row_blocks), range(column_blocks)))
    for available in (1, 2, 6, 33, 80, 132, 160):
        with mock.patch.object(launch, "multiprocessors", return_value=available):
            height, splits, segment = launch.splits_for(rows, columns, cpu)
        assert 1 <= height * splits <= available
        assert sorted(blocks_visited(row_blocks, column_blocks, height, splits, segment)) == every_block


def problem(rows: int, width: int, tile_bytes: int, masked: bool, hidden_dtype: torch.dtype, shift: int) -> Problem:
    hidden = torch.empty(rows, width + shift, dtype=hidden_dtype, device="meta")[:, shift:]
    weight = torch.empty(300_000, width, dtype=HALF, device="meta")
    kept = torch.empty(rows, dtype=torch.int64, device="meta") if masked else None
    return Problem(hidden, weight, rows=kept, columns=len(weight), tile_bytes=tile_bytes)


def test_tiles_and_copies_keep_within_tile_bytes() -> None:
    draw = random.Random(0)
    for _ in range(150):
        width = draw.choice([8, 64, 512, 4096, 7168])
        rows = draw.choice([1, 127, 129, draw.randint(1, 300), draw.randint(1, 40_000), 262_144])
        least = least_tile_bytes(torch.empty(0, width, dtype=HALF))
        budget = draw.choice([least, least + 1, int(least * draw.uniform(1, 40)), DEFAULT])
        masked, hidden_dtype, shift = draw.random() < 0.5, draw.choice([HALF, torch.float32]), draw.choice([0, 1])
        case = problem(rows, width, budget, masked, hidden_dtype, shift)
        for buffer, accumulate in itertools.product((HALF, torch.float16, torch.float32), (False, True)):
            target = WeightGradBuffer(torch.empty(300_000, width, dtype=buffer, device="meta"), accumulate)
            tiles = TritonTiles(case, target)
            used = tiles.tile_rows * padded(tiles.tile_columns) * HALF.itemsize
            if tiles.sums_apart(target, len(tiles.row_spans())):
                used += tiles.tile_columns * width * 4
            assert used <= budget
            copied = sum(
                (
                    hidden_dtype.itemsize if masked else 0,
                    HALF.itemsize if hidden_dtype != HALF else 0,
                    HALF.itemsize if shift and not masked and hidden_dtype == HALF else 0,
                )
            )
            for height in (tiles.tile_rows, tiles.forward_rows):
                assert height * width * copied <= budget or height <= BLOCK_ROWS


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("rows", "width", "columns"), [(16_384, 4096, 8448), (32_768, 2048, 8192), (8192, 7168, 8448), (512, 4096, 135168)]
)
def test_the_default_tiles_stay_wide(rows: int, width: int, columns: int, masked: bool) -> None:
    """As they were measured: a mask makes them no smaller."""
    tiles = TritonTiles(problem(rows, width, DEFAULT, masked, HALF, 0))
    assert (tiles.forward_rows, tiles.tile_rows, tiles.tile_columns) == (rows, rows, columns)
