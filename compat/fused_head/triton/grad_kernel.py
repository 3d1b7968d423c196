"""Backward: the product and the gradient of the logits in one kernel, rounded once to the dtype of the weight."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..problem import Problem, RowGrads, needed
from . import launch
from .launch import block_position, block_product, exp, store_block

STRIDE_STEP = 64  # rows begin at multiples of so many numbers: the TMA and fast products ask for it
# What is kept of a logit is how far it lies below the running maximum, in steps of a 1024th of a halving of its
# exponential: 16 bits reach over 64 halvings, and a probability errs by 2e-4 wherever it lies. A float16 of the same
# size would lose those below 3e-8, which together are the tail of a sure token; a bfloat16 errs by 2e-3.
STEP = tl.constexpr(0.6931471805599453 / 1024)
FARTHEST = tl.constexpr(65535)  # and all beyond: their exponential is 0
_FARTHEST_LOGIT = tl.constexpr(-65535 * 0.6931471805599453 / 1024)
_STEPS_PER_LOGIT = tl.constexpr(-1024 / 0.6931471805599453)
_ROUNDING = tl.constexpr(3.0 * 2**22)  # added to a number, it leaves the nearest integer in the lowest bits


def padded(columns: int) -> int:
    """The stride of a tile with so many columns."""
    return -(-columns // STRIDE_STEP) * STRIDE_STEP


@dataclass(frozen=True)
class KeptLogits:
    """The logits of the first columns of some rows."""

    steps: Tensor  # [rows, columns] int16, to be read without a sign: how far below the running maximum
    running_max: Tensor  # [blocks of columns, rows] float32

    def rows(self, r: slice) -> "KeptLogits":
        """Those of some rows."""
        return KeptLogits(self.steps[r], self.running_max[:, r])

    def to_grad(self, factors: Tensor, r: slice, c: slice, dtype: torch.dtype, entropy: bool, squares: bool) -> Tensor:
        """Turn a tile into the gradient of its raw product, in place."""
        steps, out = self.steps[r, c], self.steps[r, c].view(dtype)
        (rows, columns), block_rows, block_columns = steps.shape, 16, launch.block_columns_on(steps.device)
        _kept_to_grad[(-(-rows // block_rows), -(-columns // block_columns))](
            steps, out, steps.stride(0), self.running_max[c.start // block_columns :, r], self.running_max.stride(0),
            factors[:, r], factors.stride(0), rows, columns,
            entropy=entropy, squares=squares, block_rows=block_rows, block_columns=block_columns,
            by_nvidia=launch.by_nvidia(steps.device),
        )  # fmt: skip
        return out


def room_to_keep(problem: Problem, columns: int) -> KeptLogits | None:
    """Room for as many columns as `keep_bytes` allows, whole blocks of them or all.

    Whether memory is free is not asked: a checkpoint that runs again must save as many tensors as it did before.
    """
    rows, step = problem.row_count, launch.block_columns_on(problem.weight.device)
    count = columns_that_fit(rows, columns, step, problem.keep_bytes)
    if count == 0 or rows == 0:
        return None
    memory = problem.weight.new_empty((rows, padded(count)), dtype=torch.int16)
    running_max = problem.weight.new_empty((-(-count // step), rows), dtype=torch.float32)
    return KeptLogits(memory[:, :count], running_max)


def columns_that_fit(rows: int, columns: int, step: int, budget: int) -> int:
    """How many columns of 16-bit numbers, and a maximum for each block of `step` of them."""
    blocks = budget // max(1, rows * (2 * step + 4))
    if blocks * step < columns:
        return blocks * step
    whole = rows * (2 * padded(columns) + 4 * -(-columns // step))
    return columns if whole <= budget else (columns - 1) // step * step


@triton.jit
def to_steps(z):
    """What is kept of logits, given relative to the running maximum."""
    # Additions and bits, because to convert a number takes longer.
    rounded = tl.maximum(z, _FARTHEST_LOGIT) * _STEPS_PER_LOGIT + _ROUNDING
    return rounded.to(tl.int32, bitcast=True).to(tl.int16)


@triton.jit
def _kept_to_grad(
    kept, out, stride, running_max, maxima_stride, factors, factors_stride, rows, columns,
    entropy: tl.constexpr, squares: tl.constexpr, block_rows: tl.constexpr, block_columns: tl.constexpr,
    by_nvidia: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    column = tl.program_id(1) * block_columns + tl.arange(0, block_columns)
    real = row < rows
    row_max = tl.load(factors + factors_stride + row, mask=real, other=0.0)
    log_sum = tl.load(factors + 2 * factors_stride + row, mask=real, other=0.0)
    local_max = tl.load(running_max + tl.program_id(1).to(tl.int64) * maxima_stride + row, mask=real, other=0.0)
    log_scale = local_max - row_max - log_sum
    there = real[:, None] & (column < columns)[None, :]
    here = row.to(tl.int64)[:, None] * stride + column[None, :]
    steps = tl.load(kept + here, mask=there, other=0).to(tl.uint16, bitcast=True).to(tl.int32)
    log_p = log_scale[:, None] - steps.to(tl.float32) * STEP
    p = tl.where(steps == FARTHEST, 0.0, exp(log_p, by_nvidia))
    coefficient = tl.load(factors + 3 * factors_stride + row, mask=real, other=0.0)[:, None]
    if entropy:
        coefficient += tl.load(factors + 4 * factors_stride + row, mask=real, other=0.0)[:, None] * log_p
    if squares:
        coefficient += tl.load(factors + 5 * factors_stride + row, mask=real, other=0.0)[:, None] * p
    tl.store(out + here, (p * coefficient).to(out.dtype.element_ty), mask=there)


def row_factors(problem: Problem, grads: RowGrads) -> Tensor:
    """`[6, rows]`: scale, row_max, log_sum, and the coefficients of `RowGrads` times the scale."""
    scale = problem.scale.squeeze(1) if isinstance(problem.scale, Tensor) else problem.scale
    coefficients = (grads.softmax_coefficient, grads.entropy_coefficient, grads.squares_coefficient)
    scaled = [torch.zeros_like(grads.row_max) if one is None else one * scale for one in coefficients]
    factors = torch.stack([torch.ones_like(grads.row_max) * scale, grads.row_max, grads.log_sum, *scaled])
    return factors.float()


@dataclass
class TileGrad:
    """Makes the logits again and writes the gradient of the raw product, tile by tile; target columns come later."""

    weight: Tensor  # [columns, h]
    factors: Tensor  # [6, rows]
    terms: dict[str, bool]  # whether there is `entropy`, and `squares`
    options: dict[str, Any]  # of the kernel

    @cached_property
    def weight_operand(self) -> Any:
        """Made once, not for every tile: to describe a matrix takes the host as long as to launch a kernel."""
        return launch.operand(self.weight, *(self.options[name] for name in ("block_columns", "block_width", "tma")))

    def write(self, x: Tensor, out: Tensor, first_row: int, first_column: int) -> None:
        """Fill `out [rows, columns]`, the tile of the rows `x` that starts at `first_row` and `first_column`."""
        rows, columns = out.shape
        down, along, width, tma = (self.options[name] for name in ("block_rows", "block_columns", "block_width", "tma"))
        _tile_grad[(launch.programs(rows, columns, out.device),)](
            launch.operand(x, down, width, tma), self.weight_operand, launch.operand(out, down, along // 2, tma),
            x.stride(0), self.weight.stride(0), out.stride(0), rows, columns, len(self.weight), x.shape[1], first_row,
            first_column, self.factors, self.factors.stride(0),
            even_width=x.shape[1] % width == 0, **self.terms, **self.options,
        )  # fmt: skip


@triton.jit
def _tile_grad(
    x, w, out,
    x_stride, w_stride, out_stride, rows, columns, vocabulary, width, first_row, first_column,
    factors, factors_stride,
    entropy: tl.constexpr, squares: tl.constexpr, tma: tl.constexpr, by_nvidia: tl.constexpr,
    even_width: tl.constexpr, block_rows: tl.constexpr, block_columns: tl.constexpr, block_width: tl.constexpr,
):  # fmt: skip
    row_blocks = tl.cdiv(rows, block_rows)
    column_blocks = tl.cdiv(columns, block_columns)
    half_columns: tl.constexpr = block_columns // 2
    for block in tl.range(tl.program_id(0), row_blocks * column_blocks, tl.num_programs(0), flatten=tma):
        row_block, column_block = block_position(block, row_blocks, column_blocks)
        in_vocabulary = first_column + column_block * block_columns
        z = block_product(
            x, w, x_stride, w_stride, row_block * block_rows, in_vocabulary, rows, vocabulary, width,
            tma, even_width, block_rows, block_columns, block_width,
        )  # fmt: skip
        row = row_block * block_rows + tl.arange(0, block_rows)
        real = row < rows
        row += first_row
        scale = tl.load(factors + row, mask=real, other=0.0)
        row_max = tl.load(factors + factors_stride + row, mask=real, other=0.0)
        log_sum = tl.load(factors + 2 * factors_stride + row, mask=real, other=0.0)
        softmax_coefficient = tl.load(factors + 3 * factors_stride + row, mask=real, other=0.0)
        entropy_coefficient = tl.load(factors + 4 * factors_stride + row, mask=real, other=0.0)
        squares_coefficient = tl.load(factors + 5 * factors_stride + row, mask=real, other=0.0)
        # In two halves: the whole block in the dtype of the weight would not fit beside the operands.
        left, right = tl.split(tl.permute(tl.reshape(z, (block_rows, 2, half_columns)), (0, 2, 1)))
        for half in tl.static_range(2):
            log_p = (left if half == 0 else right) * scale[:, None] - row_max[:, None] - log_sum[:, None]
            p = exp(log_p, by_nvidia)
            coefficient = softmax_coefficient[:, None]
            if entropy:
                coefficient += entropy_coefficient[:, None] * log_p
            if squares:
                coefficient += squares_coefficient[:, None] * p
            dz = p * coefficient
            store_block(
                out, out_stride, dz.to(out.dtype if tma else out.dtype.element_ty), row_block * block_rows,
                column_block * block_columns + half * half_columns, rows, columns, tma,
            )  # fmt: skip


_PAIRS = 64  # pairs of a row and a column that a program takes at a time: few, as the rows may be few


def chosen_logits(
    x: Tensor,  # [rows, h]
    w: Tensor,  # [columns, h]
    chosen: Tensor,  # [rows, k] columns; those outside the vocabulary give 0
    scale: float | Tensor,
    out: Tensor,  # [rows, k], to be written
) -> None:
    """The logits of chosen columns, with the same bits as in the statistics: the diagonals of gathered blocks."""
    chosen = chosen.contiguous()
    options = launch.kernel_options(scale, x.device)
    row_scale = isinstance(scale, Tensor)
    _chosen_logits[(-(-chosen.numel() // _PAIRS),)](
        x, w, out, chosen,
        x.stride(0), w.stride(0), chosen.numel(), chosen.shape[1], len(w), x.shape[1],
        scale if row_scale else None, 1.0 if row_scale else scale,
        even_width=x.shape[1] % options["block_width"] == 0, pairs=_PAIRS, block_width=options["block_width"],
        num_warps=4, num_stages=8 if options["tma"] else options["num_stages"],
        enable_fp_fusion=options["enable_fp_fusion"],
    )  # fmt: skip


class TargetGrads:
    """Puts the gradients of chosen columns into tiles, from the log-probs of the forward.

    Not added to what is there: that is rounded, and where the model is confident, it and a target's own cancel.
    """

    def __init__(self, grads: RowGrads, factors: Tensor) -> None:
        self.coefficients = (needed(grads.target_coefficients) * factors[0][:, None]).contiguous()
        self.columns = needed(grads.target_columns).contiguous()
        self.logprobs = needed(grads.target_logprobs).contiguous()
        self.factors = factors

    def write(self, out: Tensor, first_row: int, first_column: int) -> None:
        """Overwrite the target columns of the tile `out`."""
        count, (rows, columns) = self.columns.shape[1], out.shape
        size = 1 << (count - 1).bit_length()
        block_rows = max(1, min(128, 2048 // size))
        _write_targets[(-(-rows // block_rows),)](
            out, out.stride(0), rows, columns, first_row, first_column,
            self.columns, self.coefficients, self.logprobs, count,
            self.factors, self.factors.stride(0), block_rows=block_rows, size=size,
        )  # fmt: skip


@triton.jit
def _chosen_logits(
    x, w, out, chosen,
    x_stride, w_stride, count, per_row, columns, width,
    row_scale, scale,
    even_width: tl.constexpr, pairs: tl.constexpr, block_width: tl.constexpr,
):  # fmt: skip
    pair = tl.program_id(0) * pairs + tl.arange(0, pairs)
    real = pair < count
    row = tl.minimum(pair, count - 1) // per_row
    column = tl.load(chosen + pair, mask=real, other=-1)
    inside = (column >= 0) & (column < columns)
    along = tl.arange(0, block_width)
    x_here = x + row.to(tl.int64)[:, None] * x_stride + along[None, :]
    w_here = w + tl.where(inside, column, 0).to(tl.int64)[None, :] * w_stride + along[:, None]
    z = tl.zeros((pairs, pairs), tl.float32)
    for step in range(tl.cdiv(width, block_width)):
        if even_width:
            a, b = tl.load(x_here), tl.load(w_here)
        else:
            there = along < width - step * block_width
            a = tl.load(x_here, mask=there[None, :], other=0.0)
            b = tl.load(w_here, mask=there[:, None], other=0.0)
        z = tl.dot(a, b, z)
        x_here += block_width
        w_here += block_width
    diagonal = tl.sum(tl.where(tl.arange(0, pairs)[:, None] == tl.arange(0, pairs)[None, :], z, 0.0), 1)
    if row_scale is not None:
        scale = tl.load(row_scale + row)
    tl.store(out + pair, tl.where(inside, diagonal * scale, 0.0), mask=real)


@triton.jit
def _write_targets(
    out, out_stride, rows, columns, first_row, first_column,
    targets, coefficients, logprobs, count,
    factors, factors_stride,
    block_rows: tl.constexpr, size: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    real = row < rows
    number = first_row + row
    softmax = tl.load(factors + 3 * factors_stride + number, mask=real, other=0.0)
    entropy = tl.load(factors + 4 * factors_stride + number, mask=real, other=0.0)
    squares = tl.load(factors + 5 * factors_stride + number, mask=real, other=0.0)
    k = tl.arange(0, size)
    here = number.to(tl.int64)[:, None] * count + k[None, :]
    there = real[:, None] & (k < count)[None, :]
    column = tl.load(targets + here, mask=there, other=-1)
    log_p = tl.load(logprobs + here, mask=there, other=0.0)
    inside = there & (column >= first_column) & (column < first_column + columns)
    p = tl.exp(tl.where(inside, log_p, 0.0))
    dz = p * (softmax[:, None] + entropy[:, None] * log_p + squares[:, None] * p)
    for other in range(count):  # a column may be there several times
        same = number.to(tl.int64) * count + other
        dz += tl.where(
            column == tl.load(targets + same, mask=real, other=-1)[:, None],
            tl.load(coefficients + same, mask=real, other=0.0)[:, None],
            0.0,
        )
    place = out + row.to(tl.int64)[:, None] * out_stride + (column - first_column)
    tl.store(place, dz.to(out.dtype.element_ty), mask=inside)
