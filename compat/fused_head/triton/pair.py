"""Two heads over the same vocabulary in one kernel: the sums of `linear_kl`, and the gradient of one head's logits.

A block of logits of each head is made, one after the other, and used up in registers. The log-sum-exp of both comes
from the kernel of `linear_logprob`, which makes logits by the same instructions.
"""

from collections.abc import Callable
from math import log
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from mcore_unpatch.compat.fused_head.divergence import Divergence
from mcore_unpatch.compat.fused_head.pair import Head
from mcore_unpatch.compat.fused_head.seam import Problem, RowStats, WeightGradBuffer
from mcore_unpatch.compat.fused_head.tile_plan import spans
from mcore_unpatch.compat.fused_head.triton.backend import TritonBackend, TritonTiles, fits
from mcore_unpatch.compat.fused_head.triton.launch import kernel_options, operand
from mcore_unpatch.compat.fused_head.triton.logits_tile import block_product, store_block

_BLOCK = 128  # rows and columns: the logits of two heads take the registers of one block twice as wide
_PROGRAMS = 1024  # about so many, each with a part of the columns, share the sums
_KINDS = {"forward": 0, "reverse": 1, "jsd": 2}


def pair_fits(mine: Problem, other: Problem) -> bool:
    """Whether the kernel takes these heads."""
    return fits(mine) and fits(other) and mine.weight.dtype == other.weight.dtype


class TritonPair:
    """As `Pair`, fused."""

    def __init__(self, mine: Head, other: Head) -> None:
        self.heads = (mine, other)

    def stats(self) -> tuple[RowStats, RowStats]:
        """Maximum and sum of exponentials of both heads on this shard."""
        mine, other = (TritonBackend().forward(head.problem) for head in self.heads)
        return mine, other

    def sums(self, divergence: Divergence) -> Tensor:
        """`Divergence.sums` of this shard, `[2, rows]`."""
        mine, other = (TritonTiles(head.problem) for head in self.heads)
        rows, columns = mine.problem.row_count, mine.column_count
        sums = mine.new(2, rows).zero_()
        factors = self._factors(sums[0], sums[0])
        for r in spans(rows if columns else 0, min(mine.sizes.forward_rows, other.sizes.forward_rows)):
            count = r.stop - r.start
            row_blocks, column_blocks = -(-count // _BLOCK), -(-columns // _BLOCK)
            segment = max(1, row_blocks * column_blocks // _PROGRAMS)
            segments = -(-column_blocks // segment)
            parts = mine.new(2, segments, count)
            operands = self._operands(mine.load_rows(r), other.load_rows(r), columns)
            _pair[(row_blocks, segments)](
                *operands,
                parts,
                parts.stride(0),
                count,
                columns,
                columns,
                r.start,
                0,
                segment,
                factors,
                factors.stride(0),
                mine.column_limit,
                **self._options(divergence, gradient=False),
            )
            torch.sum(parts, 1, out=sums[:, r])
        return sums

    def backward(
        self,
        divergence: Divergence,
        mean_f: Tensor,
        grad: Tensor,
        hidden_grad: Callable[[Tensor], None] | None,
        weight_grad: WeightGradBuffer | None,
    ) -> None:
        """As `Backend.backward`, for the first head; `mean_f` and `grad` are `[rows]`."""
        mine, other = TritonTiles(self.heads[0].problem, weight_grad), TritonTiles(self.heads[1].problem)
        factors = self._factors(mean_f, grad)
        options = self._options(divergence, gradient=True)

        def grad_of_tile(x: Tensor, w: Tensor, r: slice, c: slice) -> Tensor:
            dz = mine.gradient_tile(len(x), len(w))
            rows, columns = dz.shape
            _pair[(-(-rows // _BLOCK), -(-columns // _BLOCK))](
                *self._operands(x, other.load_rows(r), mine.column_count),
                operand(dz, _BLOCK, _BLOCK, options["tma"]),
                dz.stride(0),
                rows,
                columns,
                mine.column_count,
                r.start,
                c.start,
                1,
                factors,
                factors.stride(0),
                mine.column_limit,
                **options,
            )
            return dz

        mine.multiply_out(grad_of_tile, hidden_grad, weight_grad)

    def _operands(self, x: Tensor, y: Tensor, columns: int) -> list[Any]:
        tma, width = (self._options(Divergence("forward"), False)[name] for name in ("tma", "block_width"))
        matrices = [x, self.heads[0].problem.weight[:columns], y, self.heads[1].problem.weight[:columns]]
        return [
            *(operand(matrix, _BLOCK, width, tma) for matrix in matrices),
            *(matrix.stride(0) for matrix in matrices),
            x.shape[1],
            y.shape[1],
        ]

    def _options(self, divergence: Divergence, gradient: bool) -> dict[str, Any]:
        problem = self.heads[0].problem
        widths = [head.problem.weight.shape[1] for head in self.heads]
        options = kernel_options(problem.scale, problem.weight.device) | {"block_columns": _BLOCK}
        return options | {
            "kind": _KINDS[divergence.kind],
            "beta": divergence.beta,
            "log_beta": log(divergence.beta),
            "log_rest": log(1 - divergence.beta),
            "gradient": gradient,
            "even_width": all(width % options["block_width"] == 0 for width in widths),
        }

    def _factors(self, mean_f: Tensor, grad: Tensor) -> Tensor:
        """Of each row, `[7, rows]`: scale, row_max and log_sum of both heads, the mean of `f`, and the gradient."""
        mine, other = self.heads
        assert mine.row_max is not None
        assert mine.log_sum is not None
        assert other.row_max is not None
        assert other.log_sum is not None
        scale = mine.problem.scale
        scales = scale.squeeze(1) if isinstance(scale, Tensor) else torch.full_like(mine.row_max, scale)
        numbers = [scales, mine.row_max, mine.log_sum, other.row_max, other.log_sum, mean_f, grad * scales]
        return torch.stack([number.float() for number in numbers])


@triton.jit
def _pair(
    x,
    w,
    y,
    v,
    x_stride,
    w_stride,
    y_stride,
    v_stride,
    x_width,
    y_width,
    out,
    out_stride,
    rows,
    columns,
    vocabulary,
    first_row,
    first_column,
    segment,
    factors,
    factors_stride,
    limit,
    kind: tl.constexpr,
    beta: tl.constexpr,
    log_beta: tl.constexpr,
    log_rest: tl.constexpr,
    gradient: tl.constexpr,
    tma: tl.constexpr,
    even_width: tl.constexpr,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
    block_width: tl.constexpr,
):
    start = tl.program_id(0) * block_rows
    row = start + tl.arange(0, block_rows)
    real = row < rows
    here = factors + first_row + row
    scale = tl.load(here, mask=real, other=0.0)
    row_max = tl.load(here + factors_stride, mask=real, other=0.0)
    log_sum = tl.load(here + 2 * factors_stride, mask=real, other=0.0)
    other_max = tl.load(here + 3 * factors_stride, mask=real, other=0.0)
    other_log_sum = tl.load(here + 4 * factors_stride, mask=real, other=0.0)
    mean_f = tl.load(here + 5 * factors_stride, mask=real, other=0.0)
    upstream = tl.load(here + 6 * factors_stride, mask=real, other=0.0)
    mine = tl.zeros((block_rows,), tl.float32)
    others = tl.zeros((block_rows,), tl.float32)
    end = vocabulary
    if limit is not None:
        end = tl.load(limit).to(tl.int32)
    first_block = tl.program_id(1) * segment
    for block in range(first_block, min(first_block + segment, tl.cdiv(columns, block_columns))):
        column = first_column + block * block_columns
        a = block_product(
            x,
            w,
            x_stride,
            w_stride,
            start,
            column,
            rows,
            vocabulary,
            x_width,
            tma,
            even_width,
            block_rows,
            block_columns,
            block_width,
        )
        b = block_product(
            y,
            v,
            y_stride,
            v_stride,
            start,
            column,
            rows,
            vocabulary,
            y_width,
            tma,
            even_width,
            block_rows,
            block_columns,
            block_width,
        )
        a = a * scale[:, None] - row_max[:, None] - log_sum[:, None]
        b = b * scale[:, None] - other_max[:, None] - other_log_sum[:, None]
        inside = (column + tl.arange(0, block_columns) < end)[None, :]
        p = tl.where(inside, tl.exp(a), 0.0)
        q = tl.where(inside, tl.exp(b), 0.0)
        coefficient = a - b
        if kind == 2:
            a_part = a + log_rest
            b_part = b + log_beta
            larger = tl.maximum(a_part, b_part)
            mixture = larger + tl.log(tl.exp(a_part - larger) + tl.exp(b_part - larger))
            coefficient = (1 - beta) * (a - mixture)
            if not gradient:
                others += tl.sum(q * (beta * (b - mixture)), 1)
        if gradient:
            dz = p - q if kind == 0 else p * (coefficient - mean_f[:, None])
            dz = (dz * upstream[:, None]).to(out.dtype if tma else out.dtype.element_ty)
            store_block(out, out_stride, dz, start, block * block_columns, rows, columns, tma)
        elif kind == 0:
            others -= tl.sum(q * coefficient, 1)
        else:
            mine += tl.sum(p * coefficient, 1)
    if not gradient:
        place = out + tl.program_id(1).to(tl.int64) * rows + row
        tl.store(place, mine, mask=real)
        tl.store(place + out_stride, others, mask=real)
