"""The size of a tile: all rows and part of the vocabulary, or part of both if there are many rows."""

from collections.abc import Iterator
from dataclasses import dataclass

from mcore_unpatch.compat.fused_head.seam import Problem, math_dtype

DEFAULT_TILE_BYTES = {"cpu": 16 << 20, "cuda": 512 << 20}
# Below this width a matrix product is too thin to be fast: split the rows instead.
_THINNEST = 256
# A GPU multiplies matrices of such a width several times faster than odd ones.
_ALIGNED = 128
# Vectors of one number per row that live beside a tile.
_VECTORS = 8


@dataclass(frozen=True)
class TileCost:
    """The bytes of a tile of `rows x columns`: per cell, per row and per column."""

    cell: int
    row: int
    column: int

    def rows_for(self, columns: int, budget: int) -> int:
        """The most rows of a tile that has `columns` columns."""
        return (budget - columns * self.column) // (columns * self.cell + self.row)

    def columns_for(self, rows: int, budget: int) -> int:
        """The most columns of a tile that has `rows` rows."""
        return (budget - rows * self.row) // (rows * self.cell + self.column)


def default_tile_bytes(device_type: str) -> int:
    """The tile size if the caller gives none: cache-friendly on a CPU, wide on a GPU."""
    return DEFAULT_TILE_BYTES.get(device_type, DEFAULT_TILE_BYTES["cuda"])


def tile_cost(problem: Problem, keeps_low_precision: bool) -> TileCost:
    """The cost of the tiles of `problem`, including the casts of their operands and products."""
    hidden, weight = problem.hidden, problem.weight
    width, number = hidden.shape[1], math_dtype(weight).itemsize
    narrow = weight.dtype.itemsize < number
    cast = number if narrow and not keeps_low_precision else 0
    row = (hidden.itemsize if problem.rows is not None else 0) + cast
    row += weight.itemsize if hidden.dtype != weight.dtype else 0
    return TileCost(
        # The logits, and their exponentials or a rounded copy; booleans of a mask; a copy for the smallest logit.
        cell=2 * number + (2 if problem.keep_mask is not None else 0) + (number + 1 if problem.moments else 0),
        row=row * width + (_VECTORS + 4 * problem.topk) * 8,
        # The cast, the product before it is rounded, and the copy that a CPU's matrix library packs for itself.
        column=(cast + (number if narrow else 0) + number) * width,
    )


def plan_tiles(rows: int, columns: int, cost: TileCost, budget: int) -> tuple[int, int]:
    """Rows and columns of a tile within `budget` bytes; all rows if that leaves the tile wide enough."""
    rows, columns = max(rows, 1), max(columns, 1)
    wide = cost.columns_for(rows, budget)
    if wide >= min(columns, _THINNEST):
        return rows, columns if wide >= columns else wide // _ALIGNED * _ALIGNED
    for thin in (min(columns, 2 * _THINNEST), min(columns, 32), 1):
        tall = cost.rows_for(thin, budget)
        if tall >= min(rows, 32) or (thin == 1 and tall >= 1):
            return min(rows, tall), thin
    least = cost.cell + cost.row + cost.column
    raise ValueError(f"tile_bytes: expected at least {least} for these tensors (one cell of the logits), got {budget}")


def spans(total: int, size: int) -> Iterator[slice]:
    """Slices of `size` that cover `range(total)`."""
    for start in range(0, total, size):
        yield slice(start, min(start + size, total))
