"""Chosen columns of each row: their logits in the forward, and their exact gradients in the backward."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mcore_unpatch.compat.fused_head.seam import RowGrads

_FAR = 2**31 - 1  # a column that is in no block


class SortedColumns:
    """The columns to gather of each row in ascending order, as a program meets them on its way along the columns."""

    def __init__(self, chosen: Tensor, columns: int | Tensor, segments: int, segment_columns: int) -> None:
        inside = (chosen >= 0) & (chosen < columns)
        ascending, self.order = chosen.where(inside, _FAR).sort(1)
        self.columns = ascending.int()
        starts = torch.arange(segments, device=chosen.device, dtype=torch.int32) * segment_columns
        starts = starts.expand(len(chosen), segments).contiguous()
        self.first = torch.searchsorted(self.columns, starts, out_int32=True)  # [rows, segments]
        self.logits = torch.zeros_like(self.columns, dtype=torch.float32)

    def give(self, out: Tensor) -> None:
        """Write the logits found, in the order asked for."""
        out.scatter_(1, self.order, self.logits)


class TargetGrads:
    """Puts the gradients of chosen columns into tiles of gradients.

    Whole, from the log-probs of the forward, and not added to what is there: that is rounded to 16 bits, and where the
    model is confident, a target's own gradient and that of the softmax cancel.
    """

    def __init__(self, grads: RowGrads, factors: Tensor, limit: Tensor | None) -> None:
        assert grads.target_coefficients is not None
        assert grads.target_columns is not None
        assert grads.target_logprobs is not None
        self.coefficients = (grads.target_coefficients * factors[0][:, None]).contiguous()
        self.columns = grads.target_columns.contiguous()
        self.logprobs = grads.target_logprobs.contiguous()
        self.factors, self.limit = factors, limit

    def write(self, out: Tensor, first_row: int, first_column: int) -> None:
        """Overwrite the target columns of the tile `out`."""
        count = self.columns.shape[1]
        size = triton.next_power_of_2(count)
        block_rows = max(1, min(128, 2048 // size))
        _write_targets[(triton.cdiv(len(out), block_rows),)](
            out,
            out.stride(0),
            len(out),
            out.shape[1],
            first_row,
            first_column,
            self.columns,
            self.coefficients,
            self.logprobs,
            count,
            self.factors,
            self.factors.stride(0),
            self.limit,
            block_rows=block_rows,
            size=size,
        )


@triton.jit
def _write_targets(
    out,
    out_stride,
    rows,
    columns,
    first_row,
    first_column,
    targets,
    coefficients,
    logprobs,
    count,
    factors,
    factors_stride,
    limit,
    block_rows: tl.constexpr,
    size: tl.constexpr,
):
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
    if limit is not None:
        inside = inside & (column < tl.load(limit))
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
