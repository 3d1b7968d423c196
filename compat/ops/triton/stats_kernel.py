"""Forward: product and statistics in one kernel; neither logits nor running sums leave the registers."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mcore_unpatch.compat.ops.seam import NO_LOGIT
from mcore_unpatch.compat.ops.triton.block_sizes import BLOCK_COLUMNS
from mcore_unpatch.compat.ops.triton.launch import describe_columns, describe_rows, kernel_options, lanes_for
from mcore_unpatch.compat.ops.triton.logits_tile import block_column_of, block_product

_NO_LOGIT = tl.constexpr(NO_LOGIT)
# Peak, total and drift of a row in one lane of columns.
_NUMBERS_PER_LANE = 3


def lane_stats(
    x: Tensor,  # [rows, h]
    w: Tensor,  # [columns, h]
    scale: float | Tensor,
    limit: Tensor | None,
    targets: Tensor | None,
    target: Tensor | None,
) -> Tensor:
    """Peak, total and drift of every row in every lane of columns, `[3, lanes, rows]`; writes the targets' logits."""
    (rows, width), columns = x.shape, len(w)
    row_scale = isinstance(scale, Tensor)
    height, lanes = lanes_for(rows, columns, x.device)
    parts = w.new_empty((_NUMBERS_PER_LANE, lanes, rows), dtype=torch.float32)
    _lane_stats[(height * lanes,)](
        describe_rows(x),
        describe_columns(w),
        rows,
        columns,
        width,
        height,
        lanes,
        scale if row_scale else None,
        1.0 if row_scale else scale,
        limit,
        targets,
        parts,
        parts.stride(0),
        target,
        ragged=columns % BLOCK_COLUMNS != 0,
        **kernel_options(scale),
    )
    return parts


def merge_lanes(parts: Tensor, peak: Tensor, total: Tensor, drift: Tensor) -> None:
    """One peak, total and drift per row from those of its lanes."""
    _, lanes, rows = parts.shape
    _merge_lanes[(triton.cdiv(rows, 32),)](
        parts, parts.stride(0), rows, lanes, peak, total, drift, block_rows=32, step=32
    )


@triton.jit
def _lane_stats(
    x,
    w,
    rows,
    columns,
    width,
    height,
    lanes,
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
    # A program keeps to one lane: every `lanes`-th block of columns. It takes it down for one block of rows after the
    # other, `height` apart, and holds the statistics of those rows until the lane ends.
    lane = tl.program_id(0) // height
    first_row_block = tl.program_id(0) % height
    steps = tl.cdiv(tl.cdiv(columns, block_columns) - lane, lanes)
    visits = tl.cdiv(tl.cdiv(rows, block_rows) - first_row_block, height)
    vocabulary = columns
    if limit is not None:
        vocabulary = tl.load(limit)
    peak = tl.full((block_rows,), _NO_LOGIT, tl.float32)
    total = tl.zeros((block_rows,), tl.float32)
    drift = tl.zeros((block_rows,), tl.float32)
    for block in tl.range(visits * steps, flatten=True):
        row_block = first_row_block + block // steps * height
        step = block % steps
        first_column = (lane + step * lanes) * block_columns
        z = block_product(x, w, row_block * block_rows, first_column, width, block_rows, block_columns, block_width)
        row = row_block * block_rows + tl.arange(0, block_rows)
        real = row < rows
        if row_scale is not None:
            z *= tl.load(row_scale + row, mask=real, other=1.0)[:, None]
        else:
            z *= scale
        if targets is not None:
            wanted = tl.load(targets + row, mask=real, other=-1)
            here = block_column_of(wanted, first_column, block_columns)
            found = tl.sum(tl.where(tl.arange(0, block_columns)[None, :] == here[:, None], z, 0.0), 1)
            tl.store(target + row, found, mask=(here >= 0) & (wanted < vocabulary))
        if ragged or limit is not None:
            column = first_column + tl.arange(0, block_columns)
            z = tl.where((column < vocabulary)[None, :], z, _NO_LOGIT)
        fresh = step == 0
        before = tl.where(fresh, _NO_LOGIT, peak)
        total = tl.where(fresh, 0.0, total)
        drift = tl.where(fresh, 0.0, drift)
        peak = tl.maximum(before, tl.max(z, 1))
        z -= peak[:, None]
        share = tl.exp(z)
        fall = before - peak
        fade = tl.exp(fall)
        drift = fade * (drift + total * fall) + tl.sum(share * z, 1)
        total = fade * total + tl.sum(share, 1)
        ended = real & (step == steps - 1)
        out = parts + lane.to(tl.int64) * rows + row
        tl.store(out, peak, mask=ended)
        tl.store(out + parts_stride, total, mask=ended)
        tl.store(out + 2 * parts_stride, drift, mask=ended)


@triton.jit
def _merge_lanes(
    parts,
    parts_stride,
    rows,
    lanes,
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
    for first in range(0, lanes, step):
        lane = first + tl.arange(0, step)
        real = (lane < lanes)[:, None] & (row < rows)[None, :]
        here = parts + lane.to(tl.int64)[:, None] * rows + row[None, :]
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
