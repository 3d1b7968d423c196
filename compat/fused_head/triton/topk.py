"""The largest logits of each row, kept in a list per row and split while the columns pass."""

import triton
import triton.language as tl
from torch import Tensor

# A list and a block of logits must fit into the registers together.
LARGEST_K = 64


def merge_lists(logits: Tensor, columns: Tensor, sum_exp: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of all splits' lists `[splits, rows, k]`, and their columns; broken where the row's `sum_exp` is."""
    splits, rows, k = logits.shape
    best, where = logits.permute(1, 0, 2).reshape(rows, splits * k).topk(k, dim=1)
    chosen = columns.permute(1, 0, 2).reshape(rows, splits * k).gather(1, where)
    return best.where(sum_exp.isfinite()[:, None], sum_exp[:, None]), chosen.long()


@triton.jit
def insert_largest(
    z, first_column, threshold, values, columns, real, k,
    list_size: tl.constexpr, block_columns: tl.constexpr,
):  # fmt: skip
    """Put into the rows' lists what is larger than their smallest; returns the new smallest.

    One logit of each row at a time, the largest first, until no row has another: few, once the lists have filled.
    """
    slot = tl.arange(0, list_size)
    listed = real[:, None] & (slot < k)[None, :]
    along = tl.arange(0, block_columns)
    best = tl.max(z, 1)
    taken = tl.full((z.shape[0],), -1, tl.int32)
    while tl.max((real & (best > threshold)).to(tl.int32)) > 0:
        # Equal logits are taken from left to right: `taken` is the column of the last one.
        here = (z == best[:, None]) & (along[None, :] > taken[:, None])
        taken = tl.min(tl.where(here, along[None, :], block_columns), 1)
        better = real & (best > threshold)
        held = tl.load(values[:, None] + slot[None, :], mask=listed, other=float("inf"))
        leaves = (slot[None, :] == tl.argmin(held, 1)[:, None]) & better[:, None]
        # Stored in the shape in which it was loaded: a thread then reads again what it wrote itself.
        held = tl.where(leaves, best[:, None], held)
        tl.store(values[:, None] + slot[None, :], held, mask=leaves)
        tl.store(columns[:, None] + slot[None, :], (first_column + taken)[:, None], mask=leaves)
        threshold = tl.min(held, 1)
        # `z` itself stays as it is: a second one would not fit beside it.
        lower = (z < best[:, None]) | ((z == best[:, None]) & (along[None, :] > taken[:, None]))
        following = tl.max(tl.where(lower, z, float("-inf")), 1)
        taken = tl.where(following < best, -1, taken)
        best = following
    return threshold
