"""Forward: the product and the statistics of each of its blocks in one kernel; the logits never leave the registers."""

import triton
import triton.language as tl
from torch import Tensor

from mcore_unpatch.compat.ops.seam import NO_LOGIT
from mcore_unpatch.compat.ops.triton.launch import describe_columns, describe_rows, programs
from mcore_unpatch.compat.ops.triton.logits_tile import (
    BLOCK_COLUMNS,
    BLOCK_ROWS,
    BLOCK_WIDTH,
    block_column_of,
    block_position,
    block_product,
)

_NO_LOGIT = tl.constexpr(NO_LOGIT)
# Peak, total and drift of a row in one block of columns.
NUMBERS_PER_BLOCK = 3


def block_stats(
    x: Tensor,  # [rows, h]
    w: Tensor,  # [columns, h]
    scale: float | Tensor,
    limit: Tensor | None,
    targets: Tensor | None,
    parts: Tensor,  # [3, column blocks, rows]
    target: Tensor | None,
) -> None:
    """Write peak, total and drift of every row in every block of columns, and the logits of the targets."""
    (rows, width), columns = x.shape, len(w)
    row_scale = isinstance(scale, Tensor)
    _block_stats[(programs(rows, columns, x.device),)](
        describe_rows(x),
        describe_columns(w),
        rows,
        columns,
        width,
        scale if row_scale else None,
        1.0 if row_scale else scale,
        limit,
        targets,
        parts,
        parts.stride(0),
        target,
        ragged=columns % BLOCK_COLUMNS != 0,
        block_rows=BLOCK_ROWS,
        block_columns=BLOCK_COLUMNS,
        block_width=BLOCK_WIDTH,
        num_warps=8,
        num_stages=4,
    )


def merge_blocks(parts: Tensor, peak: Tensor, total: Tensor, drift: Tensor) -> None:
    """One peak, total and drift per row from those of its blocks."""
    _, column_blocks, rows = parts.shape
    _merge_blocks[(triton.cdiv(rows, 32),)](
        parts, parts.stride(0), rows, column_blocks, peak, total, drift, block_rows=32, step=32
    )


@triton.jit
def _block_stats(
    x,
    w,
    rows,
    columns,
    width,
    row_scale,
    scale,
    limit,
    targets,
    parts,
    parts_stride,
    target,
    ragged: tl.constexpr,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
    block_width: tl.constexpr,
):
    row_blocks = tl.cdiv(rows, block_rows)
    column_blocks = tl.cdiv(columns, block_columns)
    vocabulary = columns
    if limit is not None:
        vocabulary = tl.load(limit)
    for block in tl.range(tl.program_id(0), row_blocks * column_blocks, tl.num_programs(0), flatten=True):
        row_block, column_block = block_position(block, row_blocks, column_blocks)
        z = block_product(
            x, w, row_block * block_rows, column_block * block_columns, width, block_rows, block_columns, block_width
        )
        row = row_block * block_rows + tl.arange(0, block_rows)
        column = column_block * block_columns + tl.arange(0, block_columns)
        real = row < rows
        if row_scale is not None:
            z *= tl.load(row_scale + row, mask=real, other=1.0)[:, None]
        else:
            z *= scale
        if targets is not None:
            wanted = tl.load(targets + row, mask=real, other=-1)
            here = block_column_of(wanted, column_block * block_columns, block_columns)
            found = tl.sum(tl.where(tl.arange(0, block_columns)[None, :] == here[:, None], z, 0.0), 1)
            tl.store(target + row, found, mask=(here >= 0) & (wanted < vocabulary))
        if ragged or limit is not None:
            z = tl.where((column < vocabulary)[None, :], z, _NO_LOGIT)
        peak = tl.max(z, 1)
        z -= peak[:, None]
        share = tl.exp(z)
        out = parts + column_block.to(tl.int64) * rows + row
        tl.store(out, peak, mask=real)
        tl.store(out + parts_stride, tl.sum(share, 1), mask=real)
        tl.store(out + 2 * parts_stride, tl.sum(share * z, 1), mask=real)


@triton.jit
def _merge_blocks(
    parts,
    parts_stride,
    rows,
    column_blocks,
    peak,
    total,
    drift,
    block_rows: tl.constexpr,
    step: tl.constexpr,
):
    row = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    highest = tl.full((block_rows,), _NO_LOGIT, tl.float32)
    sum_share = tl.zeros((block_rows,), tl.float32)
    sum_drift = tl.zeros((block_rows,), tl.float32)
    for first in range(0, column_blocks, step):
        block = first + tl.arange(0, step)
        real = (block < column_blocks)[:, None] & (row < rows)[None, :]
        here = parts + block.to(tl.int64)[:, None] * rows + row[None, :]
        peaks = tl.load(here, mask=real, other=_NO_LOGIT)
        shares = tl.load(here + parts_stride, mask=real, other=0.0)
        drifts = tl.load(here + 2 * parts_stride, mask=real, other=0.0)
        higher = tl.maximum(highest, tl.max(peaks, 0))
        fall = highest - higher
        falls = peaks - higher[None, :]
        sum_drift = tl.exp(fall) * (sum_drift + sum_share * fall) + tl.sum(tl.exp(falls) * (drifts + shares * falls), 0)
        sum_share = tl.exp(fall) * sum_share + tl.sum(tl.exp(falls) * shares, 0)
        highest = higher
    tl.store(peak + row, highest, mask=row < rows)
    tl.store(total + row, sum_share, mask=row < rows)
    tl.store(drift + row, sum_drift, mask=row < rows)
