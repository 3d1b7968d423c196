"""Forward: product and statistics in one kernel; neither logits nor running sums leave the registers."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from mcore_unpatch.compat.fused_head.seam import NO_LOGIT
from mcore_unpatch.compat.fused_head.triton.chosen_columns import SortedColumns
from mcore_unpatch.compat.fused_head.triton.keep import Kept
from mcore_unpatch.compat.fused_head.triton.launch import kernel_options, operand, splits_for
from mcore_unpatch.compat.fused_head.triton.logits_tile import block_column_of, block_product, store_block
from mcore_unpatch.compat.fused_head.triton.topk import insert_largest

_NO_LOGIT = tl.constexpr(NO_LOGIT)


@dataclass(frozen=True)
class Request:
    """What is asked of some rows."""

    scale: float | Tensor
    limit: Tensor | None  # 0-dim: columns from here on are no vocabulary
    targets: Tensor | None  # [rows]
    gather_columns: Tensor | None  # [rows, k]
    squares: bool
    topk: int
    batch_invariant: bool


@dataclass(frozen=True)
class SplitStats:
    """What the splits found: the sums of each segment, and the largest logits of each split."""

    parts: Tensor  # [3 or 4, segments, rows]
    top_logits: Tensor | None  # [splits, rows, k]
    top_columns: Tensor | None  # [splits, rows, k]


def split_stats(
    x: Tensor,  # [rows, h]
    w: Tensor,  # [columns, h]
    request: Request,
    target: Tensor | None,  # [rows], to be written
    gathered: Tensor | None,  # [rows, k], to be written
    kept: Kept | None,  # to be written
) -> SplitStats:
    """One launch: the statistics of these rows in every segment of the columns."""
    (rows, width), columns = x.shape, len(w)
    options = kernel_options(request.scale, x.device)
    tma, block_columns = options["tma"], options["block_columns"]
    height, splits, segment = splits_for(rows, columns, x.device, request.batch_invariant)
    segments = -(-columns // (block_columns * segment))
    parts = w.new_empty((3 + request.squares, segments, rows), dtype=torch.float32)
    sorted_columns = top_logits = top_columns = None
    if request.gather_columns is not None:
        limit = columns if request.limit is None else request.limit
        sorted_columns = SortedColumns(request.gather_columns, limit, segments, segment * block_columns)
    if request.topk:
        top_logits = parts.new_full((splits, rows, request.topk), NO_LOGIT)
        top_columns = torch.full_like(top_logits, -1, dtype=torch.int32)
    row_scale = isinstance(request.scale, Tensor)
    _split_stats[(height * splits,)](
        operand(x, options["block_rows"], options["block_width"], tma),
        operand(w, block_columns, options["block_width"], tma),
        operand(kept.exp_z, options["block_rows"], block_columns // 2, tma) if kept is not None else None,
        kept.running_max if kept is not None else None,
        parts,
        target,
        sorted_columns.logits if sorted_columns is not None else None,
        top_logits,
        top_columns,
        x.stride(0),
        w.stride(0),
        kept.exp_z.stride(0) if kept is not None else 0,
        kept.running_max.stride(0) if kept is not None else 0,
        parts.stride(0),
        rows,
        columns,
        width,
        kept.exp_z.shape[1] if kept is not None else 0,
        height,
        splits,
        segment,
        request.scale if row_scale else None,
        1.0 if row_scale else request.scale,
        request.limit,
        request.targets,
        sorted_columns.columns if sorted_columns is not None else None,
        sorted_columns.first if sorted_columns is not None else None,
        request.gather_columns.shape[1] if request.gather_columns is not None else 0,
        request.topk,
        scaled=not row_scale and request.scale != 1,
        ragged=columns % block_columns != 0,
        even_width=width % options["block_width"] == 0,
        squares=request.squares,
        list_size=triton.next_power_of_2(request.topk) if request.topk else 0,
        **options,
    )
    if sorted_columns is not None and gathered is not None:
        sorted_columns.give(gathered)
    return SplitStats(parts, top_logits, top_columns)


def merge_parts(parts: Tensor, row_max: Tensor, sum_exp: Tensor, sum_exp_z: Tensor, squares: Tensor | None) -> None:
    """The maximum and the sums of each row from those of its segments."""
    _, segments, rows = parts.shape
    _merge_parts[(triton.cdiv(rows, 32),)](
        parts, parts.stride(0), rows, segments, row_max, sum_exp, sum_exp_z, squares, block_rows=32, step=32
    )


@triton.jit
def _split_stats(
    x,
    w,
    kept,
    running_max,
    parts,
    target,
    gathered,
    top_logits,
    top_columns,
    x_stride,
    w_stride,
    kept_stride,
    maxima_stride,
    parts_stride,
    rows,
    columns,
    width,
    kept_columns,
    height,
    splits,
    segment,
    row_scale,
    scale,
    limit,
    targets,
    gather_columns,
    first_of_segment,
    gather_count,
    topk,
    scaled: tl.constexpr,
    ragged: tl.constexpr,
    squares: tl.constexpr,
    list_size: tl.constexpr,
    tma: tl.constexpr,
    even_width: tl.constexpr,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
    block_width: tl.constexpr,
):
    # A program keeps to one split: every `splits`-th segment of columns. It takes it down for one block of rows after
    # the other, `height` apart, and holds the statistics of those rows until a segment ends.
    split = tl.program_id(0) // height
    first_row_block = tl.program_id(0) % height
    column_blocks = tl.cdiv(columns, block_columns)
    segments = tl.cdiv(column_blocks, segment)
    steps = tl.cdiv(segments - split, splits) * segment
    if (segments - 1) % splits == split:
        steps -= segments * segment - column_blocks
    visits = tl.cdiv(tl.cdiv(rows, block_rows) - first_row_block, height)
    vocabulary = columns
    if limit is not None:
        vocabulary = tl.load(limit).to(tl.int32)
    row_max = tl.full((block_rows,), _NO_LOGIT, tl.float32)
    sum_exp = tl.zeros((block_rows,), tl.float32)
    sum_exp_z = tl.zeros((block_rows,), tl.float32)
    sum_squares = tl.zeros((block_rows,), tl.float32)
    cursor = tl.zeros((block_rows,), tl.int32)
    threshold = tl.full((block_rows,), _NO_LOGIT, tl.float32)
    for block in tl.range(visits * steps, flatten=tma):
        row_block = first_row_block + block // steps * height
        step = block % steps
        part = split + step // segment * splits
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
            tma,
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
        if gather_columns is not None:
            start = tl.load(first_of_segment + row * segments + part, mask=real, other=0)
            cursor = tl.where(fresh, start, cursor)
            at = row.to(tl.int64) * gather_count
            next_one = tl.load(gather_columns + at + cursor, mask=real & (cursor < gather_count), other=2147483647)
            while tl.min(next_one) < first_column + block_columns:
                here = next_one - first_column
                found = tl.sum(tl.where(tl.arange(0, block_columns)[None, :] == here[:, None], z, 0.0), 1)
                hit = here < block_columns
                tl.store(gathered + at + cursor, found, mask=hit)
                cursor += hit.to(tl.int32)
                next_one = tl.load(gather_columns + at + cursor, mask=real & (cursor < gather_count), other=2147483647)
        if ragged or limit is not None:
            column = first_column + tl.arange(0, block_columns)
            z = tl.where((column < vocabulary)[None, :], z, _NO_LOGIT)
        if list_size > 0:
            threshold = tl.where(step == 0, _NO_LOGIT, threshold)
            at = (split.to(tl.int64) * rows + row) * topk
            threshold = insert_largest(
                z, first_column, threshold, top_logits + at, top_columns + at, real, topk, list_size, block_columns
            )
        before = tl.where(fresh, _NO_LOGIT, row_max)
        sum_exp = tl.where(fresh, 0.0, sum_exp)
        sum_exp_z = tl.where(fresh, 0.0, sum_exp_z)
        row_max = tl.maximum(before, tl.max(z, 1))
        z -= row_max[:, None]
        exp_z = tl.exp(z)
        max_change = before - row_max
        rescale = tl.exp(max_change)
        sum_exp_z = rescale * (sum_exp_z + sum_exp * max_change) + tl.sum(exp_z * z, 1)
        sum_exp = rescale * sum_exp + tl.sum(exp_z, 1)
        if squares:
            sum_squares = tl.where(fresh, 0.0, rescale * rescale * sum_squares) + tl.sum(exp_z * exp_z, 1)
        if kept is not None:
            place = running_max + column_block.to(tl.int64) * maxima_stride + row
            tl.store(place, row_max, mask=real & (first_column < kept_columns))
            # In two halves: the whole block would not fit beside the operands.
            half_columns: tl.constexpr = block_columns // 2
            halves = tl.permute(tl.reshape(exp_z.to(tl.float16), (block_rows, 2, half_columns)), (0, 2, 1))
            left, right = tl.split(halves)
            first_row = row_block * block_rows
            store_block(kept, kept_stride, left, first_row, first_column, rows, kept_columns, tma)
            half = first_column + half_columns
            store_block(kept, kept_stride, right, first_row, half, rows, kept_columns, tma)
        ended = real & ((step % segment == segment - 1) | (step == steps - 1))
        out = parts + part.to(tl.int64) * rows + row
        tl.store(out, row_max, mask=ended)
        tl.store(out + parts_stride, sum_exp, mask=ended)
        tl.store(out + 2 * parts_stride, sum_exp_z, mask=ended)
        if squares:
            tl.store(out + 3 * parts_stride, sum_squares, mask=ended)


# Compiled once for all numbers of rows and all addresses: how it is compiled decides in which order it adds up.
@triton.jit(do_not_specialize=["rows", "segments"], do_not_specialize_on_alignment=["parts", "parts_stride"])
def _merge_parts(
    parts,
    parts_stride,
    rows,
    segments,
    row_max,
    sum_exp,
    sum_exp_z,
    squares,
    block_rows: tl.constexpr,
    step: tl.constexpr,
):
    row = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    running_max = tl.full((block_rows,), _NO_LOGIT, tl.float32)
    summed = tl.zeros((block_rows,), tl.float32)
    weighted = tl.zeros((block_rows,), tl.float32)
    squared = tl.zeros((block_rows,), tl.float32)
    for first in range(0, segments, step):
        part = first + tl.arange(0, step)
        real = (part < segments)[:, None] & (row < rows)[None, :]
        here = parts + part.to(tl.int64)[:, None] * rows + row[None, :]
        maxima = tl.load(here, mask=real, other=_NO_LOGIT)
        sums_exp = tl.load(here + parts_stride, mask=real, other=0.0)
        sums_exp_z = tl.load(here + 2 * parts_stride, mask=real, other=0.0)
        new_max = tl.maximum(running_max, tl.max(maxima, 0))
        max_change = running_max - new_max
        rescale = tl.exp(max_change)
        max_changes = maxima - new_max[None, :]
        rescales = tl.exp(max_changes)
        weighted = rescale * (weighted + summed * max_change) + tl.sum(
            rescales * (sums_exp_z + sums_exp * max_changes), 0
        )
        summed = rescale * summed + tl.sum(rescales * sums_exp, 0)
        if squares is not None:
            sums_squared = tl.load(here + 3 * parts_stride, mask=real, other=0.0)
            squared = rescale * rescale * squared + tl.sum(rescales * rescales * sums_squared, 0)
        running_max = new_max
    tl.store(row_max + row, running_max, mask=row < rows)
    tl.store(sum_exp + row, summed, mask=row < rows)
    tl.store(sum_exp_z + row, weighted, mask=row < rows)
    if squares is not None:
        tl.store(squares + row, squared, mask=row < rows)
