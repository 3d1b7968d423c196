"""What the fused kernels share: a block of logits in registers, with the same bits in all of them, and its exponential.

`exp` and `log2` take one instruction of an NVIDIA card, 2 to 4 fewer for each logit than Triton's own. Triton's keep
numbers below 2**-126, which are 0 here. exp(0) is 1 and log2(1) is 0, exactly.
"""

import triton
import triton.language as tl

# Blocks that run at the same time share so many blocks of rows, which the cache then holds.
ROW_GROUP = tl.constexpr(8)
_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def block_position(block, row_blocks, column_blocks):
    """The row and the column of the `block`-th block, counted down the rows of a group, then along the columns."""
    in_group = ROW_GROUP * column_blocks
    first = block // in_group * ROW_GROUP
    height = min(row_blocks - first, ROW_GROUP)
    return first + block % in_group % height, block % in_group // height


@triton.jit
def block_product(
    x, w, x_stride, w_stride, first_row, first_column, rows, columns, width,
    tma: tl.constexpr, even_width: tl.constexpr, block_rows: tl.constexpr, block_columns: tl.constexpr,
    block_width: tl.constexpr,
):  # fmt: skip
    """`x[rows] @ w[columns].T` in float32; beyond the ends of `x` and `w` the block holds nothing of use.

    `tma`: `x` and `w` are descriptors for the TMA; otherwise pointers, of rows `x_stride` and `w_stride`
    apart.
    """
    z = tl.zeros((block_rows, block_columns), tl.float32)
    if tma:
        for step in range(tl.cdiv(width, block_width)):
            z = tl.dot(x.load([first_row, step * block_width]), w.load([first_column, step * block_width]).T, z)
    else:
        row = tl.minimum(first_row + tl.arange(0, block_rows), rows - 1)
        column = tl.minimum(first_column + tl.arange(0, block_columns), columns - 1)
        along = tl.arange(0, block_width)
        x_here = x + row.to(tl.int64)[:, None] * x_stride + along[None, :]
        w_here = w + column.to(tl.int64)[None, :] * w_stride + along[:, None]
        for step in range(tl.cdiv(width, block_width)):
            if even_width:
                a, b = tl.load(x_here), tl.load(w_here)
            else:
                inside = along < width - step * block_width
                a = tl.load(x_here, mask=inside[None, :], other=0.0)
                b = tl.load(w_here, mask=inside[:, None], other=0.0)
            z = tl.dot(a, b, z)
            x_here += block_width
            w_here += block_width
    return z


@triton.jit
def store_block(out, stride, values, first_row, first_column, rows, columns, tma: tl.constexpr):
    """Store a block of a matrix; what lies beyond its ends is dropped."""
    if tma:
        out.store([first_row, first_column], values)
    else:
        row = first_row + tl.arange(0, values.shape[0])
        column = first_column + tl.arange(0, values.shape[1])
        here = out + row.to(tl.int64)[:, None] * stride + column[None, :]
        tl.store(here, values, mask=(row < rows)[:, None] & (column < columns)[None, :])


@triton.jit
def exp(x, by_nvidia: tl.constexpr):
    """The exponential of each number."""
    if by_nvidia:
        x = tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x * _LOG2_E], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        x = tl.exp(x)
    return x


@triton.jit
def log2(x, by_nvidia: tl.constexpr):
    """The binary logarithm of each number."""
    if by_nvidia:
        x = tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        x = tl.log2(x)
    return x
