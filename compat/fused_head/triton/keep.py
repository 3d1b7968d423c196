"""What the forward keeps for the backward: `exp(z - running max)` in float16, two bytes per logit of the first columns.

The running maximum is the row's largest logit so far. The largest logit is kept as 1 to the last bit: nothing is lost
where a model is confident; of the others the rounding is an eighth of that of a gradient in bfloat16.
"""

import warnings
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from mcore_unpatch.compat.fused_head.problem import Problem
from mcore_unpatch.compat.fused_head.triton.launch import block_columns_on, by_nvidia
from mcore_unpatch.compat.fused_head.triton.logits_tile import log2

# Rows begin at multiples of so many numbers: the TMA and fast products ask for it.
STRIDE_STEP = 64
_LN2 = tl.constexpr(0.6931471805599453)
_SMALLEST = tl.constexpr(2.0**-25)  # stands for what float16 rounds to 0: its logarithm must be finite


def padded(columns: int) -> int:
    """The stride of a tile with so many columns."""
    return -(-columns // STRIDE_STEP) * STRIDE_STEP


@dataclass(frozen=True)
class Kept:
    """Shares of the first columns of some rows."""

    exp_z: Tensor  # [rows, columns] float16
    running_max: Tensor  # [blocks of columns, rows] float32

    def rows(self, r: slice) -> "Kept":
        """Those of some rows."""
        return Kept(self.exp_z[r], self.running_max[:, r])

    def to_grad(self, factors: Tensor, r: slice, c: slice, dtype: torch.dtype, entropy: bool, squares: bool) -> Tensor:
        """Turn a tile into the gradient of its raw product, in place."""
        exp_z = self.exp_z[r, c]
        out = exp_z.view(dtype)
        block_rows, block_columns = 16, block_columns_on(exp_z.device)
        rows, columns = exp_z.shape
        _kept_to_grad[(-(-rows // block_rows), -(-columns // block_columns))](
            exp_z, out, exp_z.stride(0),
            self.running_max[c.start // block_columns :, r], self.running_max.stride(0), factors[:, r],
            factors.stride(0), rows, columns,
            entropy=entropy, squares=squares, block_rows=block_rows, block_columns=block_columns,
            by_nvidia=by_nvidia(exp_z.device),
        )  # fmt: skip
        return out


def room_to_keep(problem: Problem, columns: int) -> Kept | None:
    """Room for as many columns as `keep_bytes` allows, whole blocks of them or all."""
    rows, step = problem.row_count, block_columns_on(problem.weight.device)
    count = _columns_that_fit(rows, columns, step, problem.keep_bytes)
    if count == 0 or rows == 0:
        return None
    try:
        memory = problem.weight.new_empty((rows, padded(count)), dtype=torch.float16)
        running_max = problem.weight.new_empty((-(-count // step), rows), dtype=torch.float32)
    except torch.OutOfMemoryError:
        warnings.warn(
            f"keep_bytes: {problem.keep_bytes / 2**30:.1f} GiB are not free, the backward computes the logits again",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return Kept(memory[:, :count], running_max)


def _columns_that_fit(rows: int, columns: int, step: int, budget: int) -> int:
    blocks = budget // max(1, rows * (2 * step + 4))
    if blocks * step < columns:
        return blocks * step
    whole = rows * (2 * padded(columns) + 4 * -(-columns // step))
    return columns if whole <= budget else (columns - 1) // step * step


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
    exp_z = tl.load(kept + here, mask=there, other=0.0).to(tl.float32)
    p = exp_z * tl.exp(log_scale)[:, None]
    coefficient = tl.load(factors + 3 * factors_stride + row, mask=real, other=0.0)[:, None]
    if entropy:
        log_p = log2(tl.maximum(exp_z, _SMALLEST), by_nvidia) * _LN2 + log_scale[:, None]
        coefficient += tl.load(factors + 4 * factors_stride + row, mask=real, other=0.0)[:, None] * log_p
    if squares:
        coefficient += tl.load(factors + 5 * factors_stride + row, mask=real, other=0.0)[:, None] * p
    tl.store(out + here, (p * coefficient).to(out.dtype.element_ty), mask=there)
