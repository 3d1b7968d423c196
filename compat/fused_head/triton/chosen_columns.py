"""Chosen columns of each row: their logits in the forward, and their exact gradients in the backward."""

import triton
import triton.language as tl
from torch import Tensor

from mcore_unpatch.compat.fused_head.problem import RowGrads, needed
from mcore_unpatch.compat.fused_head.triton.launch import kernel_options

# Pairs of a row and a column that a program takes at a time: few, as the rows may be few.
_PAIRS = 64


def chosen_logits(
    x: Tensor,  # [rows, h]
    w: Tensor,  # [columns, h]
    chosen: Tensor,  # [rows, k] columns; those outside the vocabulary give 0
    scale: float | Tensor,
    out: Tensor,  # [rows, k], to be written
) -> None:
    """The logits of chosen columns, with the same bits as in the statistics.

    To look for them in every block of logits would cost more: this multiplies blocks of `_PAIRS` rows with as many
    gathered columns, by the same instructions, and takes the diagonals.
    """
    chosen = chosen.contiguous()
    options = kernel_options(scale, x.device)
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
    """Puts the gradients of chosen columns into tiles of gradients.

    Whole, from the log-probs of the forward, and not added to what is there: that is rounded to 16 bits, and where the
    model is confident, a target's own gradient and that of the softmax cancel.
    """

    def __init__(self, grads: RowGrads, factors: Tensor) -> None:
        self.coefficients = (needed(grads.target_coefficients) * factors[0][:, None]).contiguous()
        self.columns = needed(grads.target_columns).contiguous()
        self.logprobs = needed(grads.target_logprobs).contiguous()
        self.factors = factors

    def write(self, out: Tensor, first_row: int, first_column: int) -> None:
        """Overwrite the target columns of the tile `out`."""
        count = self.columns.shape[1]
        rows, columns = out.shape
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
