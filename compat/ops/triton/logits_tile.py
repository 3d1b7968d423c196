"""One block of logits in registers: what both fused kernels begin with, so that both see the same bits."""

import triton
import triton.language as tl

# Blocks that run at the same time share so many blocks of rows, which the cache then holds.
ROW_GROUP = tl.constexpr(8)


@triton.jit
def block_position(block, row_blocks, column_blocks):
    """The row and the column of the `block`-th block, counted down the rows of a group, then along the columns."""
    in_group = ROW_GROUP * column_blocks
    first = block // in_group * ROW_GROUP
    height = min(row_blocks - first, ROW_GROUP)
    return first + block % in_group % height, block % in_group // height


@triton.jit
def block_column_of(wanted, first_column, block_columns: tl.constexpr):
    """Columns as seen from the block that starts at `first_column`, in 32 bits; -1 where they are not in it."""
    here = wanted - first_column
    return tl.where((here >= 0) & (here < block_columns), here, -1).to(tl.int32)


@triton.jit
def block_product(
    x,
    w,
    first_row,
    first_column,
    width,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
    block_width: tl.constexpr,
):
    """`x[rows] @ w[columns].T` in float32; `x` and `w` are descriptors and give zeros beyond their ends."""
    z = tl.zeros((block_rows, block_columns), tl.float32)
    for step in range(tl.cdiv(width, block_width)):
        z = tl.dot(x.load([first_row, step * block_width]), w.load([first_column, step * block_width]).T, z)
    return z
