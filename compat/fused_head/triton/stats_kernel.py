"""Forward: product and statistics in one kernel; neither logits nor running sums leave the registers."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from mcore_unpatch.compat.fused_head.seam import NO_LOGIT
from mcore_unpatch.compat.fused_head.triton.keep import Kept
from mcore_unpatch.compat.fused_head.triton.launch import kernel_options, lanes_for, operand
from mcore_unpatch.compat.fused_head.triton.logits_tile import block_column_of, block_product, store_block
from mcore_unpatch.compat.fused_head.triton.points import SoughtPoints
from mcore_unpatch.compat.fused_head.triton.topk import insert_largest

_NO_LOGIT = tl.constexpr(NO_LOGIT)


@dataclass(frozen=True)
class Asked:
    """What is asked of some rows."""

    scale: float | Tensor
    limit: Tensor | None  # 0-dim: columns from here on are no vocabulary
    targets: Tensor | None  # [rows]
    points: Tensor | None  # [rows, k]
    squares: bool
    topk: int
    batch_invariant: bool


@dataclass(frozen=True)
class LaneStats:
    """What the lanes found: the sums of each segment, and the largest logits of each lane."""

    parts: Tensor  # [3 or 4, segments, rows]
    top_logits: Tensor | None  # [lanes, rows, k]
    top_columns: Tensor | None  # [lanes, rows, k]


def lane_stats(
    x: Tensor,  # [rows, h]
    w: Tensor,  # [columns, h]
    asked: Asked,
    target: Tensor | None,  # [rows], to be written
    point: Tensor | None,  # [rows, k], to be written
    kept: Kept | None,  # to be written
) -> LaneStats:
    """One launch: the statistics of these rows in every segment of the columns."""
    (rows, width), columns = x.shape, len(w)
    options = kernel_options(asked.scale, x.device)
    described, block_columns = options["described"], options["block_columns"]
    height, lanes, segment = lanes_for(rows, columns, x.device, asked.batch_invariant)
    segments = -(-columns // (block_columns * segment))
    parts = w.new_empty((3 + asked.squares, segments, rows), dtype=torch.float32)
    sought = top_logits = top_columns = None
    if asked.points is not None:
        limit = columns if asked.limit is None else asked.limit
        sought = SoughtPoints(asked.points, limit, segments, segment * block_columns)
    if asked.topk:
        top_logits = parts.new_full((lanes, rows, asked.topk), NO_LOGIT)
        top_columns = torch.full_like(top_logits, -1, dtype=torch.int32)
    row_scale = isinstance(asked.scale, Tensor)
    _lane_stats[(height * lanes,)](
        operand(x, options["block_rows"], options["block_width"], described),
        operand(w, block_columns, options["block_width"], described),
        operand(kept.shares, options["block_rows"], block_columns // 2, described) if kept is not None else None,
        kept.references if kept is not None else None,
        parts,
        target,
        sought.logits if sought is not None else None,
        top_logits,
        top_columns,
        x.stride(0),
        w.stride(0),
        kept.shares.stride(0) if kept is not None else 0,
        kept.references.stride(0) if kept is not None else 0,
        parts.stride(0),
        rows,
        columns,
        width,
        kept.shares.shape[1] if kept is not None else 0,
        height,
        lanes,
        segment,
        asked.scale if row_scale else None,
        1.0 if row_scale else asked.scale,
        asked.limit,
        asked.targets,
        sought.columns if sought is not None else None,
        sought.first if sought is not None else None,
        asked.points.shape[1] if asked.points is not None else 0,
        asked.topk,
        scaled=not row_scale and asked.scale != 1,
        ragged=columns % block_columns != 0,
        even_width=width % options["block_width"] == 0,
        squares=asked.squares,
        list_size=triton.next_power_of_2(asked.topk) if asked.topk else 0,
        **options,
    )
    if sought is not None and point is not None:
        sought.give(point)
    return LaneStats(parts, top_logits, top_columns)


def merge_parts(parts: Tensor, peak: Tensor, total: Tensor, drift: Tensor, squares: Tensor | None) -> None:
    """One peak, total, drift and sum of squares per row from those of its segments."""
    _, segments, rows = parts.shape
    _merge_parts[(triton.cdiv(rows, 32),)](
        parts, parts.stride(0), rows, segments, peak, total, drift, squares, block_rows=32, step=32
    )


@triton.jit
def _lane_stats(
    x,
    w,
    kept,
    references,
    parts,
    target,
    point,
    top_logits,
    top_columns,
    x_stride,
    w_stride,
    kept_stride,
    references_stride,
    parts_stride,
    rows,
    columns,
    width,
    kept_columns,
    height,
    lanes,
    segment,
    row_scale,
    scale,
    limit,
    targets,
    points,
    first_points,
    point_count,
    topk,
    scaled: tl.constexpr,
    ragged: tl.constexpr,
    squares: tl.constexpr,
    list_size: tl.constexpr,
    described: tl.constexpr,
    even_width: tl.constexpr,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
    block_width: tl.constexpr,
):
    # A program keeps to one lane: every `lanes`-th segment of columns. It takes it down for one block of rows after the
    # other, `height` apart, and holds the statistics of those rows until a segment ends.
    lane = tl.program_id(0) // height
    first_row_block = tl.program_id(0) % height
    column_blocks = tl.cdiv(columns, block_columns)
    segments = tl.cdiv(column_blocks, segment)
    steps = tl.cdiv(segments - lane, lanes) * segment
    if (segments - 1) % lanes == lane:
        steps -= segments * segment - column_blocks
    visits = tl.cdiv(tl.cdiv(rows, block_rows) - first_row_block, height)
    vocabulary = columns
    if limit is not None:
        vocabulary = tl.load(limit).to(tl.int32)
    peak = tl.full((block_rows,), _NO_LOGIT, tl.float32)
    total = tl.zeros((block_rows,), tl.float32)
    drift = tl.zeros((block_rows,), tl.float32)
    sum_squares = tl.zeros((block_rows,), tl.float32)
    cursor = tl.zeros((block_rows,), tl.int32)
    threshold = tl.full((block_rows,), _NO_LOGIT, tl.float32)
    for block in tl.range(visits * steps, flatten=described):
        row_block = first_row_block + block // steps * height
        step = block % steps
        part = lane + step // segment * lanes
        column_block = part * segment + step % segment
        first_column = column_block * block_columns
        z = block_product(
            x,
            w,
            x_stride,
            w_stride,
            row_block * block_rows,
            first_column,
            rows,
            columns,
            width,
            described,
            even_width,
            block_rows,
            block_columns,
            block_width,
        )
        row = row_block * block_rows + tl.arange(0, block_rows)
        real = row < rows
        fresh = step % segment == 0
        if row_scale is not None:
            z *= tl.load(row_scale + row, mask=real, other=1.0)[:, None]
        elif scaled:
            z *= scale
        if targets is not None:
            wanted = tl.load(targets + row, mask=real, other=-1)
            here = block_column_of(wanted, first_column, block_columns)
            found = tl.sum(tl.where(tl.arange(0, block_columns)[None, :] == here[:, None], z, 0.0), 1)
            tl.store(target + row, found, mask=(here >= 0) & (wanted < vocabulary))
        if points is not None:
            start = tl.load(first_points + row * segments + part, mask=real, other=0)
            cursor = tl.where(fresh, start, cursor)
            at = row.to(tl.int64) * point_count
            next_one = tl.load(points + at + cursor, mask=real & (cursor < point_count), other=2147483647)
            while tl.min(next_one) < first_column + block_columns:
                here = next_one - first_column
                found = tl.sum(tl.where(tl.arange(0, block_columns)[None, :] == here[:, None], z, 0.0), 1)
                hit = here < block_columns
                tl.store(point + at + cursor, found, mask=hit)
                cursor += hit.to(tl.int32)
                next_one = tl.load(points + at + cursor, mask=real & (cursor < point_count), other=2147483647)
        if ragged or limit is not None:
            column = first_column + tl.arange(0, block_columns)
            z = tl.where((column < vocabulary)[None, :], z, _NO_LOGIT)
        if list_size > 0:
            threshold = tl.where(step == 0, _NO_LOGIT, threshold)
            at = (lane.to(tl.int64) * rows + row) * topk
            threshold = insert_largest(
                z, first_column, threshold, top_logits + at, top_columns + at, real, topk, list_size, block_columns
            )
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
        if squares:
            sum_squares = tl.where(fresh, 0.0, fade * fade * sum_squares) + tl.sum(share * share, 1)
        if kept is not None:
            reference = references + column_block.to(tl.int64) * references_stride + row
            tl.store(reference, peak, mask=real & (first_column < kept_columns))
            # In two halves: the whole block would not fit beside the operands.
            half_columns: tl.constexpr = block_columns // 2
            halves = tl.permute(tl.reshape(share.to(tl.float16), (block_rows, 2, half_columns)), (0, 2, 1))
            left, right = tl.split(halves)
            first_row = row_block * block_rows
            store_block(kept, kept_stride, left, first_row, first_column, rows, kept_columns, described)
            half = first_column + half_columns
            store_block(kept, kept_stride, right, first_row, half, rows, kept_columns, described)
        ended = real & ((step % segment == segment - 1) | (step == steps - 1))
        out = parts + part.to(tl.int64) * rows + row
        tl.store(out, peak, mask=ended)
        tl.store(out + parts_stride, total, mask=ended)
        tl.store(out + 2 * parts_stride, drift, mask=ended)
        if squares:
            tl.store(out + 3 * parts_stride, sum_squares, mask=ended)


# Compiled once for all numbers of rows and all addresses: how it is compiled decides in which order it adds up.
@triton.jit(do_not_specialize=["rows", "segments"], do_not_specialize_on_alignment=["parts", "parts_stride"])
def _merge_parts(
    parts,
    parts_stride,
    rows,
    segments,
    peak,
    total,
    drift,
    squares,
    block_rows: tl.constexpr,
    step: tl.constexpr,
):
    row = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    highest = tl.full((block_rows,), _NO_LOGIT, tl.float32)
    sum_share = tl.zeros((block_rows,), tl.float32)
    sum_drift = tl.zeros((block_rows,), tl.float32)
    sum_squares = tl.zeros((block_rows,), tl.float32)
    for first in range(0, segments, step):
        part = first + tl.arange(0, step)
        real = (part < segments)[:, None] & (row < rows)[None, :]
        here = parts + part.to(tl.int64)[:, None] * rows + row[None, :]
        peaks = tl.load(here, mask=real, other=_NO_LOGIT)
        shares = tl.load(here + parts_stride, mask=real, other=0.0)
        drifts = tl.load(here + 2 * parts_stride, mask=real, other=0.0)
        higher = tl.maximum(highest, tl.max(peaks, 0))
        fall = highest - higher
        fade = tl.exp(fall)
        falls = peaks - higher[None, :]
        fades = tl.exp(falls)
        sum_drift = fade * (sum_drift + sum_share * fall) + tl.sum(fades * (drifts + shares * falls), 0)
        sum_share = fade * sum_share + tl.sum(fades * shares, 0)
        if squares is not None:
            parts_squares = tl.load(here + 3 * parts_stride, mask=real, other=0.0)
            sum_squares = fade * fade * sum_squares + tl.sum(fades * fades * parts_squares, 0)
        highest = higher
    tl.store(peak + row, highest, mask=row < rows)
    tl.store(total + row, sum_share, mask=row < rows)
    tl.store(drift + row, sum_drift, mask=row < rows)
    if squares is not None:
        tl.store(squares + row, sum_squares, mask=row < rows)
