"""What `linear_kl` may keep of its forward, four bytes for the logits of both heads, and what is made of it.

Of each pair the larger logit, in steps as `linear_logprob` keeps one, and how far the two are apart, in float16: an
error of the smaller one is then relative to it, and where the heads are close, so that their probabilities cancel, what
is left of them has all its digits.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..problem import Problem
from .grad_kernel import FARTHEST, STEP, columns_that_fit, padded, to_steps
from .launch import by_nvidia, exp, log2, store_block

PAIR_BLOCK = 128  # rows and columns: the logits of two heads take the registers of one block twice as wide
_ROWS_AT_ONCE = 16
_JSD = tl.constexpr(2)
_LN2 = tl.constexpr(0.6931471805599453)
_MOST_APART = tl.constexpr(60_000.0)  # no exponential is left of it
_NEAR = tl.constexpr(0.25)  # up to here the difference of two probabilities is taken from a series


@dataclass(frozen=True)
class KeptPair:
    """The logits of the first columns of some rows, each relative to its head's running maximum."""

    steps: Tensor  # [rows, columns] int16, to be read without a sign: how far the larger of two lies below
    apart: Tensor  # [rows, columns] float16: the first head's logit without the second's
    maxima: Tensor  # [2, blocks of columns, rows] float32

    def rows(self, r: slice) -> "KeptPair":
        """Those of some rows."""
        return KeptPair(self.steps[r], self.apart[r], self.maxima[:, :, r])

    def sums(self, factors: Tensor, options: dict[str, Any]) -> Tensor:
        """`Divergence.sums` of these columns, `[2, rows]`."""
        parts = torch.empty_like(self.maxima)
        self._launch(_kept_sums, parts, factors, options)
        return parts.sum(1)

    def to_grad(self, factors: Tensor, r: slice, c: slice, dtype: torch.dtype, options: dict[str, Any]) -> Tensor:
        """Turn a tile into the gradient of the first head's raw product, in place."""
        tile = KeptPair(self.steps[r, c], self.apart[r, c], self.maxima[:, c.start // PAIR_BLOCK :, r])
        out = tile.steps.view(dtype)
        tile._launch(_kept_to_grad, out, factors[:, r], options)
        return out

    def _launch(self, kernel: Any, out: Tensor, factors: Tensor, options: dict[str, Any]) -> None:
        rows, columns = self.steps.shape
        kernel[(-(-rows // _ROWS_AT_ONCE), -(-columns // PAIR_BLOCK))](
            self.steps, self.apart, self.steps.stride(0), self.maxima, self.maxima.stride(0), self.maxima.stride(1),
            out, out.stride(0), out.stride(1), factors, factors.stride(0), rows, columns,
            **{name: options[name] for name in ("kind", "beta", "log_beta", "log_rest")},
            block_rows=_ROWS_AT_ONCE, block_columns=PAIR_BLOCK, by_nvidia=by_nvidia(self.steps.device),
        )  # fmt: skip


def room_for_pair(problem: Problem, columns: int) -> KeptPair | None:
    """Room for as many columns as `keep_bytes` allows, whole blocks of them or all."""
    rows, new = problem.row_count, problem.weight.new_empty
    count = columns_that_fit(rows, columns, PAIR_BLOCK, problem.keep_bytes // 2)  # two of everything
    if count == 0 or rows == 0:
        return None
    steps, apart = (new((rows, padded(count)), dtype=dtype)[:, :count] for dtype in (torch.int16, torch.float16))
    return KeptPair(steps, apart, new((2, -(-count // PAIR_BLOCK), rows), dtype=torch.float32))


@triton.jit
def keep_pair(
    steps, apart, stride, maxima, head_stride, block_stride, a, b, a_max, b_max, row_block, column_block, rows, columns,
    tma: tl.constexpr, block_rows: tl.constexpr, block_columns: tl.constexpr,
):  # fmt: skip
    """Store a block of logits that are relative to the running maxima; columns beyond those kept are dropped."""
    first_row, first_column = row_block * block_rows, column_block * block_columns
    row = first_row + tl.arange(0, block_rows)
    place = maxima + tl.cast(column_block, tl.int64) * block_stride + row
    real = (row < rows) & (first_column < columns)
    tl.store(place, a_max, mask=real)
    tl.store(place + head_stride, b_max, mask=real)
    store_block(steps, stride, to_steps(tl.maximum(a, b)), first_row, first_column, rows, columns, tma)
    store_block(apart, stride, (a - b).to(tl.float16), first_row, first_column, rows, columns, tma)


@triton.jit
def log_mixture(a, b, log_beta: tl.constexpr, log_rest: tl.constexpr, by_nvidia: tl.constexpr):
    """The logarithm of JSD's mixture, from two log-probs."""
    a_part = a + log_rest
    b_part = b + log_beta
    larger = tl.maximum(a_part, b_part)
    return larger + _LN2 * log2(exp(a_part - larger, by_nvidia) + exp(b_part - larger, by_nvidia), by_nvidia)


@triton.jit
def _kept_pair(
    steps, apart, stride, maxima, head_stride, block_stride, factors, factors_stride, rows, columns,
    block_rows: tl.constexpr, block_columns: tl.constexpr, by_nvidia: tl.constexpr,
):  # fmt: skip
    """Both probabilities of a block, the logarithm of their ratio, and where the block lies."""
    row = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    column = tl.program_id(1) * block_columns + tl.arange(0, block_columns)
    real = row < rows
    norms = factors + row
    place = maxima + tl.program_id(1).to(tl.int64) * block_stride + row
    a_scale = tl.load(place, mask=real, other=0.0) - tl.load(norms + factors_stride, mask=real, other=0.0)
    a_scale -= tl.load(norms + 2 * factors_stride, mask=real, other=0.0)
    b_scale = tl.load(place + head_stride, mask=real, other=0.0)
    b_scale -= tl.load(norms + 3 * factors_stride, mask=real, other=0.0)
    b_scale -= tl.load(norms + 4 * factors_stride, mask=real, other=0.0)
    there = real[:, None] & (column < columns)[None, :]
    here = row.to(tl.int64)[:, None] * stride + column[None, :]
    taken = tl.load(steps + here, mask=there, other=0).to(tl.uint16, bitcast=True).to(tl.int32)
    distance = tl.load(apart + here, mask=there, other=0.0).to(tl.float32)
    distance = tl.minimum(tl.maximum(distance, -_MOST_APART), _MOST_APART)  # what lay farther apart is infinite
    ratio = distance + (a_scale - b_scale)[:, None]
    first = distance >= 0  # whether the larger logit, which is the one that is kept, is the first head's
    log_larger = tl.where(first, a_scale[:, None], b_scale[:, None]) - taken.to(tl.float32) * STEP
    larger = exp(log_larger, by_nvidia)
    smaller = exp(log_larger - tl.where(first, ratio, -ratio), by_nvidia)
    nothing = (taken == FARTHEST) | (there == 0)
    p = tl.where(nothing, 0.0, tl.where(first, larger, smaller))
    q = tl.where(nothing, 0.0, tl.where(first, smaller, larger))
    return p, q, ratio, row, column, real, there


@triton.jit
def _kept_sums(
    steps, apart, stride, maxima, head_stride, block_stride, out, out_stride, out_block_stride, factors,
    factors_stride, rows, columns,
    kind: tl.constexpr, beta: tl.constexpr, log_beta: tl.constexpr, log_rest: tl.constexpr,
    block_rows: tl.constexpr, block_columns: tl.constexpr, by_nvidia: tl.constexpr,
):  # fmt: skip
    """Of each block and row the two sums of JSD."""
    p, q, ratio, row, _, real, _ = _kept_pair(
        steps, apart, stride, maxima, head_stride, block_stride, factors, factors_stride, rows, columns,
        block_rows, block_columns, by_nvidia,
    )  # fmt: skip
    mixture = log_mixture(tl.zeros_like(ratio), -ratio, log_beta, log_rest, by_nvidia)  # relative to the first head
    place = out + tl.program_id(1).to(tl.int64) * out_block_stride + row
    tl.store(place, tl.sum((1 - beta) * p * -mixture, 1), mask=real)
    tl.store(place + out_stride, tl.sum(beta * q * (-ratio - mixture), 1), mask=real)


@triton.jit
def _kept_to_grad(
    steps, apart, stride, maxima, head_stride, block_stride, out, out_stride, out_column_stride, factors,
    factors_stride, rows, columns,
    kind: tl.constexpr, beta: tl.constexpr, log_beta: tl.constexpr, log_rest: tl.constexpr,
    block_rows: tl.constexpr, block_columns: tl.constexpr, by_nvidia: tl.constexpr,
):  # fmt: skip
    """The gradient of the first head's raw product, over what was kept."""
    p, q, ratio, row, column, real, there = _kept_pair(
        steps, apart, stride, maxima, head_stride, block_stride, factors, factors_stride, rows, columns,
        block_rows, block_columns, by_nvidia,
    )  # fmt: skip
    if kind == 0:
        series = 1 - ratio / 2 * (1 - ratio / 3 * (1 - ratio / 4 * (1 - ratio / 5)))
        dz = tl.where(tl.abs(ratio) < _NEAR, p * ratio * series, p - q)
    else:
        f = ratio
        if kind == _JSD:
            f = (beta - 1) * log_mixture(tl.zeros_like(ratio), -ratio, log_beta, log_rest, by_nvidia)
        dz = p * (f - tl.load(factors + 5 * factors_stride + row, mask=real, other=0.0)[:, None])
    dz *= tl.load(factors + 6 * factors_stride + row, mask=real, other=0.0)[:, None]
    here = out + row.to(tl.int64)[:, None] * out_stride + column[None, :]
    tl.store(here, dz.to(out.dtype.element_ty), mask=there)
