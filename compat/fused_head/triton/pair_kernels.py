"""Two heads over the same vocabulary: the statistics and sums of `linear_kl`, and the gradient of one head's logits.

A block of logits of each head is made and used up in registers, by the same instructions in every pass.
"""

from math import log
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..linear_kl import Divergence, Pair, merge_pair_stats
from ..problem import NO_LOGIT, GradBuffer, GradOfTile, Problem
from ..torch_backend import Tiles, spans
from . import launch
from .backend import TritonBackend, TritonTiles, fits
from .kept_pair import PAIR_BLOCK, KeptPair, keep_pair, log_mixture, room_for_pair
from .launch import block_position, block_product, exp, store_block

_STAGES = 5  # of blocks of operands in shared memory, where the blocks of kept logits leave room for no more
_NO_LOGIT = tl.constexpr(NO_LOGIT)
_KINDS = {"forward": 0, "reverse": 1, "jsd": 2}
_JSD = tl.constexpr(2)


def pair_fits(first: Problem, second: Problem) -> bool:
    """Whether the kernels take these heads."""
    return fits(first) and fits(second) and first.weight.dtype == second.weight.dtype


class TritonPair(Pair):
    """By fused kernels."""

    @property
    def _kept(self) -> KeptPair | None:
        return KeptPair(*self.kept) if self.kept else None

    def make_room(self) -> None:
        """For as many columns as `keep_bytes` allows; `stats` fills it."""
        problem = self.heads[0].problem
        room = room_for_pair(problem, TritonTiles(problem).column_count)
        self.kept = () if room is None else (room.steps, room.apart, room.maxima)

    def stats(self, divergence: Divergence) -> Tensor:
        """Both heads in one kernel; or, where nothing is kept and `cross` of no use, each by `linear_logprob`'s."""
        if divergence.kind != "jsd" or self.kept:
            return merge_pair_stats(self._parts(divergence, 5).transpose(0, 1), divergence.weighing)
        first, second = (TritonBackend().forward(head.problem) for head in self.heads)
        no_cross = torch.zeros_like(first.row_max)
        return torch.stack([first.row_max, second.row_max, first.sum_exp, second.sum_exp, no_cross])

    def sums(self, divergence: Divergence) -> Tensor:
        """The segments' sums are added up by torch."""
        kept = self._kept
        if kept is None:
            return self._parts(divergence, 2).sum(1)
        no_grad = torch.zeros_like(kept.maxima[0, 0])
        sums = kept.sums(self._row_arguments(no_grad, no_grad)[0], self._options(divergence))
        return sums + self._parts(divergence, 2, kept.steps.shape[1]).sum(1)

    def _parts(self, divergence: Divergence, count: int, start: int = 0) -> Tensor:
        """`[count, segments, rows]` of the columns from `start` on; where there are five, what has room is kept."""
        first, second = (TritonTiles(head.problem) for head in self.heads)
        rows, columns, device = first.problem.row_count, first.column_count - start, first.problem.weight.device
        most_rows = min(first.forward_rows, second.forward_rows)
        column_blocks = max(1, -(-columns // PAIR_BLOCK))  # a shard may have no column
        height, splits, segment = launch.cut_columns(
            -(-most_rows // PAIR_BLOCK), column_blocks, launch.multiprocessors(device)
        )
        parts = first.new(count, splits, rows).zero_()
        if count == 5:
            parts[:2] = NO_LOGIT
        scales = [head.problem.scale for head in self.heads]
        scaled = any(isinstance(scale, Tensor) or scale != 1 for scale in scales)
        options = self._options(divergence)
        for r in spans(rows if columns else 0, most_rows):
            _pair_sums[(height * splits,)](
                *self._operands(first.load_rows(r), second.load_rows(r), slice(start, first.column_count)),
                parts[:, :, r], *parts.stride()[:2], r.stop - r.start, columns, r.start, height, splits, segment,
                *self._row_arguments(torch.zeros_like(parts[0, 0]), torch.zeros_like(parts[0, 0])),
                *self._room(r if count == 5 else None, options["tma"]),
                stats=count == 5, scaled=scaled, ragged=columns % PAIR_BLOCK != 0, **options,
            )  # fmt: skip
        return parts

    def _room(self, r: slice | None, tma: bool) -> list[Any]:
        """Where `_pair_sums` keeps the logits of these rows: the arguments of `keep_pair` that it is given."""
        if self._kept is None or r is None:
            return [None] * 3 + [0] * 4
        kept = self._kept.rows(r)
        numbers = (launch.operand(matrix, PAIR_BLOCK, PAIR_BLOCK, tma) for matrix in (kept.steps, kept.apart))
        strides = (kept.steps.stride(0), kept.maxima.stride(0), kept.maxima.stride(1))
        return [*numbers, kept.maxima, *strides, kept.steps.shape[1]]

    def grad_of_tile(
        self, divergence: Divergence, mean_f: Tensor, grad: Tensor, weight_grad: GradBuffer
    ) -> tuple[Tiles, GradOfTile]:
        """One launch per tile."""
        kept, head = self._kept, self.heads[0].problem
        first = TritonTiles(head, weight_grad, 0 if kept is None else kept.steps.shape[1])
        second = TritonTiles(self.heads[1].problem)
        row_arguments, options = self._row_arguments(mean_f, grad), self._options(divergence)
        available = launch.multiprocessors(first.problem.weight.device)

        def grad_of_tile(x: Tensor, w: Tensor, r: slice, c: slice) -> Tensor:
            if kept is not None and c.start < first.kept_columns:
                return kept.to_grad(row_arguments[0], r, c, w.dtype, options)
            dz = first.gradient_tile(len(x), len(w))
            rows, columns = dz.shape
            _pair_grad[(min(available, -(-rows // PAIR_BLOCK) * -(-columns // PAIR_BLOCK)),)](
                *self._operands(x, second.load_rows(r), slice(first.column_count)),
                launch.operand(dz, PAIR_BLOCK, PAIR_BLOCK, options["tma"]), dz.stride(0), rows, columns,
                first.column_count, r.start, c.start,
                *row_arguments, **options,
            )  # fmt: skip
            return dz

        return first, grad_of_tile

    def _operands(self, x: Tensor, y: Tensor, c: slice) -> list[Any]:
        options = self._options(Divergence("forward"))
        matrices = [x, self.heads[0].problem.weight[c], y, self.heads[1].problem.weight[c]]
        return [
            *(launch.operand(matrix, PAIR_BLOCK, options["block_width"], options["tma"]) for matrix in matrices),
            *(matrix.stride(0) for matrix in matrices),
            x.shape[1],
            y.shape[1],
        ]

    def _options(self, divergence: Divergence) -> dict[str, Any]:
        problems = [head.problem for head in self.heads]
        options, others = (launch.kernel_options(problem.scale, problem.weight.device) for problem in problems)
        widths = [head.problem.weight.shape[1] for head in self.heads]
        return options | {
            "block_columns": PAIR_BLOCK,
            "num_warps": 8,
            "num_stages": _STAGES if options["tma"] else options["num_stages"],
            "enable_fp_fusion": options["enable_fp_fusion"] and others["enable_fp_fusion"],
            "even_width": all(width % options["block_width"] == 0 for width in widths),
            "kind": _KINDS[divergence.kind],
            "beta": divergence.beta,
            "log_beta": log(divergence.beta),
            "log_rest": log(1 - divergence.beta),
        }

    def _row_arguments(self, mean_f: Tensor, grad: Tensor) -> tuple[Tensor, int]:
        """Of each row: scale, both heads' maximum and log_sum, the mean of `f`, the gradient, the second's scale."""
        first, second = self.heads
        scales = [
            scale.squeeze(1) if isinstance(scale, Tensor) else torch.full_like(mean_f, scale)
            for scale in (first.problem.scale, second.problem.scale)
        ]
        norms = [first.row_max, first.log_sum, second.row_max, second.log_sum]
        known = [torch.zeros_like(mean_f) if norm is None else norm for norm in norms]
        numbers = (scales[0], *known, mean_f, grad * scales[0], scales[1])
        factors = torch.stack([number.float() for number in numbers])
        return factors, factors.stride(0)


@triton.jit
def _two_blocks(
    x, w, y, v, x_stride, w_stride, y_stride, v_stride, x_width, y_width, first_row, first_column, rows, vocabulary,
    tma: tl.constexpr, even_width: tl.constexpr, block_rows: tl.constexpr, block_columns: tl.constexpr,
    block_width: tl.constexpr,
):  # fmt: skip
    """A block of raw logits of each head."""
    a = block_product(
        x, w, x_stride, w_stride, first_row, first_column, rows, vocabulary, x_width, tma, even_width,
        block_rows, block_columns, block_width,
    )  # fmt: skip
    b = block_product(
        y, v, y_stride, v_stride, first_row, first_column, rows, vocabulary, y_width, tma, even_width,
        block_rows, block_columns, block_width,
    )  # fmt: skip
    return a, b


@triton.jit
def _pair_sums(
    x, w, y, v, x_stride, w_stride, y_stride, v_stride, x_width, y_width,
    parts, parts_stride, part_stride, rows, columns, first_row, height, splits, segment,
    factors, factors_stride,
    kept_steps, kept_apart, kept_maxima, kept_stride, head_stride, block_stride, kept_columns,
    stats: tl.constexpr, scaled: tl.constexpr, ragged: tl.constexpr,
    kind: tl.constexpr, beta: tl.constexpr, log_beta: tl.constexpr, log_rest: tl.constexpr,
    tma: tl.constexpr, by_nvidia: tl.constexpr, even_width: tl.constexpr, block_rows: tl.constexpr,
    block_columns: tl.constexpr, block_width: tl.constexpr,
):  # fmt: skip
    """`stats`: both heads' maxima and sums of exponentials, and `cross` (`merge_pair_stats`); else the sums of JSD."""
    split = tl.program_id(0) // height
    column_blocks = tl.cdiv(columns, block_columns)
    for row_block in range(tl.program_id(0) % height, tl.cdiv(rows, block_rows), height):
        row = row_block * block_rows + tl.arange(0, block_rows)
        real = row < rows
        here = factors + first_row + row
        scale = tl.load(here, mask=real, other=0.0)
        for part in range(split, tl.cdiv(column_blocks, segment), splits):
            a_max = tl.full((block_rows,), _NO_LOGIT, tl.float32)
            b_max = tl.full((block_rows,), _NO_LOGIT, tl.float32)
            a_sum = tl.zeros((block_rows,), tl.float32)
            b_sum = tl.zeros((block_rows,), tl.float32)
            cross = tl.zeros((block_rows,), tl.float32)
            first_block = part * segment
            for column_block in range(first_block, min(first_block + segment, column_blocks)):
                a, b = _two_blocks(
                    x, w, y, v, x_stride, w_stride, y_stride, v_stride, x_width, y_width, row_block * block_rows,
                    column_block * block_columns, rows, columns, tma, even_width, block_rows, block_columns,
                    block_width,
                )  # fmt: skip
                inside = (column_block * block_columns + tl.arange(0, block_columns) < columns)[None, :]
                if scaled:
                    a *= scale[:, None]
                    b *= tl.load(here + 7 * factors_stride, mask=real, other=0.0)[:, None]
                if stats:
                    if ragged:
                        a = tl.where(inside, a, _NO_LOGIT)
                        b = tl.where(inside, b, _NO_LOGIT)
                    a_new = tl.maximum(a_max, tl.max(a, 1))
                    b_new = tl.maximum(b_max, tl.max(b, 1))
                    a -= a_new[:, None]
                    b -= b_new[:, None]
                    if kept_steps is not None:
                        keep_pair(
                            kept_steps, kept_apart, kept_stride, kept_maxima, head_stride, block_stride, a, b, a_new,
                            b_new, row_block, column_block, rows, kept_columns, tma, block_rows, block_columns,
                        )  # fmt: skip
                    p = exp(a, by_nvidia)
                    q = exp(b, by_nvidia)
                    a_change = a_max - a_new
                    b_change = b_max - b_new
                    a_rescale = exp(a_change, by_nvidia)
                    b_rescale = exp(b_change, by_nvidia)
                    if kind == 0:
                        cross = b_rescale * (cross + b_sum * (b_change - a_change)) + tl.sum(q * (b - a), 1)
                    elif kind == 1:  # JSD has no use for it
                        cross = a_rescale * (cross + a_sum * (a_change - b_change)) + tl.sum(p * (a - b), 1)
                    a_sum = a_rescale * a_sum + tl.sum(p, 1)
                    b_sum = b_rescale * b_sum + tl.sum(q, 1)
                    a_max = a_new
                    b_max = b_new
                else:
                    a = a - tl.load(here + factors_stride, mask=real, other=0.0)[:, None]
                    a = a - tl.load(here + 2 * factors_stride, mask=real, other=0.0)[:, None]
                    b = b - tl.load(here + 3 * factors_stride, mask=real, other=0.0)[:, None]
                    b = b - tl.load(here + 4 * factors_stride, mask=real, other=0.0)[:, None]
                    mixture = log_mixture(a, b, log_beta, log_rest, by_nvidia)
                    student = exp(a, by_nvidia) * ((1 - beta) * (a - mixture))
                    teacher = exp(b, by_nvidia) * (beta * (b - mixture))
                    if ragged:
                        student = tl.where(inside, student, 0.0)
                        teacher = tl.where(inside, teacher, 0.0)
                    a_sum += tl.sum(student, 1)
                    b_sum += tl.sum(teacher, 1)
            out = parts + tl.cast(part, tl.int64) * part_stride + row
            if stats:
                tl.store(out, a_max, mask=real)
                tl.store(out + parts_stride, b_max, mask=real)
                out += 2 * parts_stride
                tl.store(out + 2 * parts_stride, cross, mask=real)
            tl.store(out, a_sum, mask=real)
            tl.store(out + parts_stride, b_sum, mask=real)


@triton.jit
def _pair_grad(
    x, w, y, v, x_stride, w_stride, y_stride, v_stride, x_width, y_width,
    out, out_stride, rows, columns, vocabulary, first_row, first_column,
    factors, factors_stride,
    kind: tl.constexpr, beta: tl.constexpr, log_beta: tl.constexpr, log_rest: tl.constexpr,
    tma: tl.constexpr, by_nvidia: tl.constexpr, even_width: tl.constexpr, block_rows: tl.constexpr,
    block_columns: tl.constexpr, block_width: tl.constexpr,
):  # fmt: skip
    """The gradient of the first head's raw product."""
    row_blocks = tl.cdiv(rows, block_rows)
    column_blocks = tl.cdiv(columns, block_columns)
    for block in range(tl.program_id(0), row_blocks * column_blocks, tl.num_programs(0)):
        row_block, column_block = block_position(block, row_blocks, column_blocks)
        column = first_column + column_block * block_columns
        a, b = _two_blocks(
            x, w, y, v, x_stride, w_stride, y_stride, v_stride, x_width, y_width, row_block * block_rows, column, rows,
            vocabulary, tma, even_width, block_rows, block_columns, block_width,
        )  # fmt: skip
        row = row_block * block_rows + tl.arange(0, block_rows)
        real = row < rows
        here = factors + first_row + row
        scale = tl.load(here, mask=real, other=0.0)
        a = a * scale[:, None] - tl.load(here + factors_stride, mask=real, other=0.0)[:, None]
        a -= tl.load(here + 2 * factors_stride, mask=real, other=0.0)[:, None]
        b *= tl.load(here + 7 * factors_stride, mask=real, other=0.0)[:, None]
        b -= tl.load(here + 3 * factors_stride, mask=real, other=0.0)[:, None]
        b -= tl.load(here + 4 * factors_stride, mask=real, other=0.0)[:, None]
        if kind == 0:
            dz = exp(a, by_nvidia) - exp(b, by_nvidia)
        else:
            f = (1 - beta) * (a - log_mixture(a, b, log_beta, log_rest, by_nvidia)) if kind == _JSD else a - b
            dz = exp(a, by_nvidia) * (f - tl.load(here + 5 * factors_stride, mask=real, other=0.0)[:, None])
        dz *= tl.load(here + 6 * factors_stride, mask=real, other=0.0)[:, None]
        dz = tl.where((column + tl.arange(0, block_columns) < vocabulary)[None, :], dz, 0.0)
        dz = dz.to(out.dtype if tma else out.dtype.element_ty)
        store_block(out, out_stride, dz, row_block * block_rows, column_block * block_columns, rows, columns, tma)
