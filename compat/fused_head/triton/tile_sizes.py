"""How large the tiles are: large enough for fast products, small enough for the memory the caller allows."""

from dataclasses import dataclass

from mcore_unpatch.compat.fused_head.memory import BLOCK_COLUMNS, BLOCK_ROWS, least_tile_bytes
from mcore_unpatch.compat.fused_head.problem import Problem
from mcore_unpatch.compat.fused_head.triton.launch import tma_can_read

# The most rows of a forward launch and of a tile of gradients, whatever the memory: more are no faster.
_MOST_ROWS = 32_768
# Four blocks of rows by 33 of columns are one turn of a Hopper's 132 multiprocessors: with 32, four would stand idle.
_TURN_COLUMNS = 33 * BLOCK_COLUMNS
# A tile of gradients has at least so many bytes, or all columns: with fewer, few rows would mean many short launches.
_ENOUGH_BYTES = 128 << 20


@dataclass(frozen=True)
class TileSizes:
    """The rows a forward launch takes, and the rows and columns of a tile of gradients."""

    forward_rows: int
    rows: int
    columns: int


def tile_sizes(problem: Problem, columns: int, sums_apart: bool) -> TileSizes:
    """The sizes for a problem with so many columns of vocabulary.

    `tile_bytes` bounds a tile together with the float32 sums of its columns, where these are kept apart: by
    `sums_apart`, or because the rows come in several tiles. It also bounds, for itself, the copy of a tile's or a
    launch's rows, though a block of rows is the least.
    """
    rows, budget = max(problem.row_count, 1), problem.tile_bytes
    cell, column_sum = problem.weight.itemsize, 4 * problem.weight.shape[1]
    least = least_tile_bytes(problem.weight)
    if budget < least:
        raise ValueError(f"tile_bytes: expected at least {least} for these tensors and this backend, got {budget}")
    most = min(_MOST_ROWS, max(BLOCK_ROWS, budget // max(1, _copied_bytes(problem))))
    tall = min(rows, most, budget // (BLOCK_COLUMNS * cell))
    beside = column_sum if sums_apart or tall < rows else 0
    tall = min(tall, (budget // BLOCK_COLUMNS - beside) // cell)
    if tall < rows:
        tall, beside = tall // BLOCK_ROWS * BLOCK_ROWS, column_sum
    turns = max(1, round(_ENOUGH_BYTES / (tall * cell * _TURN_COLUMNS)))
    wide = min(budget // (tall * cell + beside), turns * _TURN_COLUMNS) // BLOCK_COLUMNS * BLOCK_COLUMNS
    return TileSizes(
        forward_rows=rows if rows <= most else most // BLOCK_ROWS * BLOCK_ROWS,
        rows=tall,
        columns=min(max(columns, 1), wide),
    )


def _copied_bytes(problem: Problem) -> int:
    """Bytes of the copies of one row: gathered by a mask, cast, or moved to where the TMA can read it."""
    hidden, weight = problem.hidden, problem.weight
    gathered = hidden.itemsize if problem.rows is not None else 0
    cast = weight.itemsize if hidden.dtype != weight.dtype else 0
    moved = 0 if gathered or cast or tma_can_read(hidden) else weight.itemsize
    return hidden.shape[1] * (gathered + cast + moved)
