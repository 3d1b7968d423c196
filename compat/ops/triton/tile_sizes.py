"""How large the tiles are: large enough for fast products, small enough for the memory the caller allows."""

from dataclasses import dataclass

from mcore_unpatch.compat.ops.seam import Problem
from mcore_unpatch.compat.ops.triton.launch import blocks
from mcore_unpatch.compat.ops.triton.logits_tile import BLOCK_COLUMNS, BLOCK_ROWS
from mcore_unpatch.compat.ops.triton.stats_kernel import NUMBERS_PER_BLOCK

# Beyond this many rows or columns the products of a gradient tile get no faster; few rows want more columns.
_MOST_ROWS = 32_768
_ENOUGH_COLUMNS = 8_192
_ENOUGH_CELLS = 1 << 26


@dataclass(frozen=True)
class TileSizes:
    """The rows a forward launch takes, and the rows and columns of a tile of gradients."""

    forward_rows: int
    rows: int
    columns: int


def tile_sizes(problem: Problem, columns: int) -> TileSizes:
    """The sizes for a problem with so many columns of vocabulary, within its `tile_bytes`."""
    rows, budget, width = max(problem.row_count, 1), problem.tile_bytes, problem.hidden.shape[1]
    stats_of_a_row = NUMBERS_PER_BLOCK * 4 * max(1, blocks(1, columns)[1])
    cell, column_sum = problem.weight.itemsize, 4 * width
    least = max(stats_of_a_row * BLOCK_ROWS, BLOCK_COLUMNS * (BLOCK_ROWS * cell + column_sum))
    if budget < least:
        raise ValueError(f"tile_bytes: expected at least {least} for these tensors and this backend, got {budget}")
    wanted = max(_ENOUGH_COLUMNS, _ENOUGH_CELLS // rows)
    tall = min(rows, _MOST_ROWS, max(BLOCK_ROWS, budget // (BLOCK_COLUMNS * cell)))
    if tall < rows:  # the weight's gradient is added up over blocks of rows
        tall = min(tall, (budget - BLOCK_COLUMNS * column_sum) // (BLOCK_COLUMNS * cell))
        wide = budget // (tall * cell + column_sum)
    else:
        wide = budget // (tall * cell)
    wide = max(BLOCK_COLUMNS, min(wide, wanted) // BLOCK_COLUMNS * BLOCK_COLUMNS)
    return TileSizes(
        forward_rows=min(rows, _MOST_ROWS, budget // stats_of_a_row // BLOCK_ROWS * BLOCK_ROWS),
        rows=tall if tall == rows else max(BLOCK_ROWS, tall // BLOCK_ROWS * BLOCK_ROWS),
        columns=_even(columns, wide),
    )


def _even(total: int, most: int) -> int:
    """A size near `most` that leaves no small rest."""
    pieces = max(1, -(-total // most))
    return -(-max(total, 1) // pieces // BLOCK_COLUMNS) * BLOCK_COLUMNS if pieces > 1 else max(total, 1)
