"""Backward: the product and the gradient of the logits in one kernel, rounded once to the dtype of the weight."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from mcore_unpatch.compat.ops.seam import Problem, RowGrads
from mcore_unpatch.compat.ops.triton.block_sizes import BLOCK_COLUMNS, BLOCK_ROWS
from mcore_unpatch.compat.ops.triton.launch import describe_columns, describe_rows, kernel_options, programs
from mcore_unpatch.compat.ops.triton.logits_tile import block_column_of, block_position, block_product


def row_factors(problem: Problem, grads: RowGrads) -> Tensor:
    """What the kernel needs to know of each row, `[6, rows]`: scale, peak, log_total, pull, slope, own.

    The gradient of the raw product is `exp(log p) * (pull + slope * log p)`, and `own` more at the target.
    """
    factors = torch.zeros(6, problem.row_count, dtype=torch.float32, device=problem.weight.device)
    scale, peak, log_total, pull, slope, own = factors
    if isinstance(problem.scale, Tensor):
        scale.copy_(problem.scale.squeeze(1))
    else:
        scale.fill_(problem.scale)
    peak.copy_(grads.peak)
    log_total.copy_(grads.log_total)
    torch.mul(grads.softmax, scale, out=pull)
    if grads.entropy is not None:
        torch.mul(grads.entropy, scale, out=slope)
    if grads.points is not None:
        torch.mul(grads.points.squeeze(1), scale, out=own)
    return factors


class TileGrad:
    """Writes the gradient of the raw product, tile by tile; the weight is described once."""

    def __init__(
        self,
        weight: Tensor,  # [columns, h]
        scale: float | Tensor,
        factors: Tensor,  # [6, rows]
        limit: Tensor | None,
        targets: Tensor | None,  # [rows]
        entropy: bool,
    ) -> None:
        self.options = kernel_options(scale)
        self.columns = describe_columns(weight) if len(weight) else None
        self.factors, self.limit, self.targets, self.entropy = factors, limit, targets, entropy

    def write(self, x: Tensor, out: Tensor, first_row: int, first_column: int) -> None:
        """Fill `out [rows, columns]`, the tile of the rows `x` that starts at `first_row` and `first_column`."""
        rows, columns = out.shape
        _tile_grad[(programs(rows, columns, out.device),)](
            describe_rows(x),
            self.columns,
            TensorDescriptor.from_tensor(out, [BLOCK_ROWS, BLOCK_COLUMNS // 2]),
            rows,
            columns,
            x.shape[1],
            first_row,
            first_column,
            self.factors,
            self.factors.stride(0),
            self.limit,
            self.targets,
            entropy=self.entropy,
            **self.options,
        )


@triton.jit
def _tile_grad(
    x,
    w,
    out,
    rows,
    columns,
    width,
    first_row,
    first_column,
    factors,
    factors_stride,
    limit,
    targets,
    entropy: tl.constexpr,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
    block_width: tl.constexpr,
):
    row_blocks = tl.cdiv(rows, block_rows)
    column_blocks = tl.cdiv(columns, block_columns)
    half_columns: tl.constexpr = block_columns // 2
    for block in tl.range(tl.program_id(0), row_blocks * column_blocks, tl.num_programs(0), flatten=True):
        row_block, column_block = block_position(block, row_blocks, column_blocks)
        in_vocabulary = first_column + column_block * block_columns
        z = block_product(x, w, row_block * block_rows, in_vocabulary, width, block_rows, block_columns, block_width)
        row = row_block * block_rows + tl.arange(0, block_rows)
        real = row < rows
        row += first_row
        scale = tl.load(factors + row, mask=real, other=0.0)
        peak = tl.load(factors + factors_stride + row, mask=real, other=0.0)
        log_total = tl.load(factors + 2 * factors_stride + row, mask=real, other=0.0)
        pull = tl.load(factors + 3 * factors_stride + row, mask=real, other=0.0)
        slope = tl.load(factors + 4 * factors_stride + row, mask=real, other=0.0)
        if targets is not None:
            own = tl.load(factors + 5 * factors_stride + row, mask=real, other=0.0)
            wanted = tl.load(targets + row, mask=real, other=-1)
            wanted = block_column_of(wanted, in_vocabulary, block_columns)
        # In two halves: the whole block in the dtype of the weight would not fit beside the operands.
        left, right = tl.split(tl.permute(tl.reshape(z, (block_rows, 2, half_columns)), (0, 2, 1)))
        for half in tl.static_range(2):
            column = half * half_columns + tl.arange(0, half_columns)
            log_p = (left if half == 0 else right) * scale[:, None] - peak[:, None] - log_total[:, None]
            force = pull[:, None]
            if entropy:
                force += slope[:, None] * log_p
            dz = tl.exp(log_p) * force
            if targets is not None:
                dz += tl.where(column[None, :] == wanted[:, None], own[:, None], 0.0)
            if limit is not None:
                inside = in_vocabulary + column < tl.load(limit)
                dz = tl.where(inside[None, :], dz, 0.0)
            out.store([row_block * block_rows, column_block * block_columns + half * half_columns], dz.to(out.dtype))
