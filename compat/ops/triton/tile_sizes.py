"""How large the tiles are: large enough for fast products, small enough for the memory the caller allows."""

from dataclasses import dataclass

from mcore_unpatch.compat.ops.seam import Problem
from mcore_unpatch.compat.ops.triton.block_sizes import BLOCK_COLUMNS, BLOCK_ROWS, least_tile_bytes

# Beyond this many rows or columns the products of a gradient tile get no faster.
_MOST_ROWS = 32_768
# Four blocks of rows by 33 of columns are one turn of a Hopper's 132 multiprocessors: with 32, four would stand idle.
_ENOUGH_COLUMNS = 33 * BLOCK_COLUMNS


@dataclass(frozen=True)
class TileSizes:
    """The rows a forward launch takes, and the rows and columns of a tile of gradients."""

    forward_rows: int
    rows: int
    columns: int


def tile_sizes(problem: Problem, columns: int) -> TileSizes:
    """The sizes for a problem with so many columns of vocabulary, within its `tile_bytes`."""
    rows, budget, width = max(problem.row_count, 1), problem.tile_bytes, problem.hidden.shape[1]
    cell, column_sum = problem.weight.itemsize, 4 * width
    least = least_tile_bytes(problem.weight)
    if budget < least:
        raise ValueError(f"tile_bytes: expected at least {least} for these tensors and this backend, got {budget}")
    tall = min(rows, _MOST_ROWS, max(BLOCK_ROWS, budget // (BLOCK_COLUMNS * cell)))
    if tall < rows:  # the weight's gradient is added up over blocks of rows
        tall = min(tall, (budget - BLOCK_COLUMNS * column_sum) // (BLOCK_COLUMNS * cell))
        wide = budget // (tall * cell + column_sum)
    else:
        wide = budget // (tall * cell)
    wide = max(BLOCK_COLUMNS, min(wide, _ENOUGH_COLUMNS) // BLOCK_COLUMNS * BLOCK_COLUMNS)
    return TileSizes(
        forward_rows=min(rows, _MOST_ROWS),
        rows=tall if tall == rows else max(BLOCK_ROWS, tall // BLOCK_ROWS * BLOCK_ROWS),
        columns=min(max(columns, 1), wide),
    )
