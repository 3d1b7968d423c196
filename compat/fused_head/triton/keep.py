"""What the forward keeps for the backward: `exp(z - reference)` in float16, two bytes per logit of the first columns.

The reference is the row's largest logit so far. The share of the largest logit is 1 to the last bit, so nothing is lost
where a model is confident; of the others the rounding is an eighth of that of a gradient in bfloat16.
"""

import warnings
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from mcore_unpatch.compat.fused_head.seam import Problem
from mcore_unpatch.compat.fused_head.triton.launch import block_columns_on

# Rows begin at multiples of so many numbers: the copy engine and fast products ask for it.
STRIDE_STEP = 64
_LN2 = tl.constexpr(0.6931471805599453)
_SMALLEST = tl.constexpr(2.0**-25)  # stands for a share that float16 rounds to 0: its logarithm must be finite


def padded(columns: int) -> int:
    """The stride of a tile with so many columns."""
    return -(-columns // STRIDE_STEP) * STRIDE_STEP


@dataclass(frozen=True)
class Kept:
    """Shares of the first columns of some rows."""

    shares: Tensor  # [rows, columns] float16
    references: Tensor  # [blocks of columns, rows] float32

    def rows(self, r: slice) -> "Kept":
        """Those of some rows."""
        return Kept(self.shares[r], self.references[:, r])

    def to_grad(self, factors: Tensor, r: slice, c: slice, dtype: torch.dtype, entropy: bool, squares: bool) -> Tensor:
        """Turn a tile into the gradient of its raw product, in place."""
        shares = self.shares[r, c]
        out = shares.view(dtype)
        block_rows, block_columns = 16, block_columns_on(shares.device)
        rows, columns = shares.shape
        _shares_to_grad[(triton.cdiv(rows, block_rows), triton.cdiv(columns, block_columns))](
            shares,
            out,
            shares.stride(0),
            self.references[c.start // block_columns :, r],
            self.references.stride(0),
            factors[:, r],
            factors.stride(0),
            rows,
            columns,
            entropy=entropy,
            squares=squares,
            block_rows=block_rows,
            block_columns=block_columns,
            by_nvidia=shares.is_cuda and torch.version.hip is None,
        )
        return out


def room_to_keep(problem: Problem, columns: int) -> Kept | None:
    """Room for the shares of as many columns as `keep_bytes` allows, whole blocks of them or all."""
    rows, step = problem.row_count, block_columns_on(problem.weight.device)
    count = _columns_that_fit(rows, columns, step, problem.keep_bytes)
    if count == 0 or rows == 0:
        return None
    try:
        memory = problem.weight.new_empty((rows, padded(count)), dtype=torch.float16)
        references = problem.weight.new_empty((-(-count // step), rows), dtype=torch.float32)
    except torch.OutOfMemoryError:
        warnings.warn(
            f"keep_bytes: {problem.keep_bytes / 2**30:.1f} GiB are not free, the backward computes the logits again",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return Kept(memory[:, :count], references)


def _columns_that_fit(rows: int, columns: int, step: int, budget: int) -> int:
    blocks = budget // max(1, rows * (2 * step + 4))
    if blocks * step < columns:
        return blocks * step
    whole = rows * (2 * padded(columns) + 4 * -(-columns // step))
    return columns if whole <= budget else (columns - 1) // step * step


@triton.jit
def _log2(x, by_nvidia: tl.constexpr):
    """By one instruction where there is one: the kernel is as fast as the memory only then. 0 for 1, exactly."""
    if by_nvidia:
        x = tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        x = tl.log2(x)
    return x


@triton.jit
def _shares_to_grad(
    shares,
    out,
    stride,
    references,
    references_stride,
    factors,
    factors_stride,
    rows,
    columns,
    entropy: tl.constexpr,
    squares: tl.constexpr,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
    by_nvidia: tl.constexpr,
):
    row = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    column = tl.program_id(1) * block_columns + tl.arange(0, block_columns)
    real = row < rows
    peak = tl.load(factors + factors_stride + row, mask=real, other=0.0)
    log_total = tl.load(factors + 2 * factors_stride + row, mask=real, other=0.0)
    reference = tl.load(references + tl.program_id(1).to(tl.int64) * references_stride + row, mask=real, other=0.0)
    log_reference = reference - peak - log_total
    there = real[:, None] & (column < columns)[None, :]
    here = row.to(tl.int64)[:, None] * stride + column[None, :]
    share = tl.load(shares + here, mask=there, other=0.0).to(tl.float32)
    p = share * tl.exp(log_reference)[:, None]
    force = tl.load(factors + 3 * factors_stride + row, mask=real, other=0.0)[:, None]
    if entropy:
        log_p = _log2(tl.maximum(share, _SMALLEST), by_nvidia) * _LN2 + log_reference[:, None]
        force += tl.load(factors + 4 * factors_stride + row, mask=real, other=0.0)[:, None] * log_p
    if squares:
        force += tl.load(factors + 5 * factors_stride + row, mask=real, other=0.0)[:, None] * p
    tl.store(out + here, (p * force).to(out.dtype.element_ty), mask=there)
