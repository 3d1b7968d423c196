"""The triton backend: the forward's kernel, whose logits and sums never leave the registers, and both passes."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..problem import NO_LOGIT, GradBuffer, Problem, RowGrads, RowStats, TakeGrad
from ..torch_backend import Tiles, TorchBackend, spans
from . import grad_kernel, launch
from .grad_kernel import KeptLogits, to_steps
from .launch import block_product, exp, store_block

LARGEST_K = 64  # a list and a block of logits must fit into the registers together


def merge_lists(logits: Tensor, columns: Tensor, sum_exp: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of all splits' lists `[splits, rows, k]`, and their columns; broken where the row's `sum_exp` is."""
    splits, rows, k = logits.shape
    best, where = logits.permute(1, 0, 2).reshape(rows, splits * k).topk(k, dim=1)
    chosen = columns.permute(1, 0, 2).reshape(rows, splits * k).gather(1, where)
    return best.where(sum_exp.isfinite()[:, None], sum_exp[:, None]), chosen.long()


@triton.jit
def insert_largest(
    z, first_column, threshold, values, columns, real, k,
    list_size: tl.constexpr, block_columns: tl.constexpr,
):  # fmt: skip
    """Put into the rows' lists what is larger than their smallest; returns the new smallest.

    One logit of each row at a time, the largest first, until no row has another: few, once the lists have filled.
    """
    slot = tl.arange(0, list_size)
    listed = real[:, None] & (slot < k)[None, :]
    along = tl.arange(0, block_columns)
    best = tl.max(z, 1)
    taken = tl.full((z.shape[0],), -1, tl.int32)
    while tl.max((real & (best > threshold)).to(tl.int32)) > 0:
        # Equal logits are taken from left to right: `taken` is the column of the last one.
        here = (z == best[:, None]) & (along[None, :] > taken[:, None])
        taken = tl.min(tl.where(here, along[None, :], block_columns), 1)
        better = real & (best > threshold)
        held = tl.load(values[:, None] + slot[None, :], mask=listed, other=float("inf"))
        leaves = (slot[None, :] == tl.argmin(held, 1)[:, None]) & better[:, None]
        # Stored in the shape in which it was loaded: a thread then reads again what it wrote itself.
        held = tl.where(leaves, best[:, None], held)
        tl.store(values[:, None] + slot[None, :], held, mask=leaves)
        tl.store(columns[:, None] + slot[None, :], (first_column + taken)[:, None], mask=leaves)
        threshold = tl.min(held, 1)
        # `z` itself stays as it is: a second one would not fit beside it.
        lower = (z < best[:, None]) | ((z == best[:, None]) & (along[None, :] > taken[:, None]))
        following = tl.max(tl.where(lower, z, float("-inf")), 1)
        taken = tl.where(following < best, -1, taken)
        best = following
    return threshold


_NO_LOGIT = tl.constexpr(NO_LOGIT)


def split_stats(
    x: Tensor,  # [rows, h]
    w: Tensor,  # [columns, h]
    scale: float | Tensor,
    asked: Problem,
    kept: KeptLogits | None,  # to be written
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """`[3 or 4, segments, rows]` sums, and lists of the largest logits and their columns, each `[splits, rows, k]`."""
    (rows, width), columns = x.shape, len(w)
    options = launch.kernel_options(scale, x.device)
    tma, block_columns = options["tma"], options["block_columns"]
    height, splits, segment = launch.splits_for(rows, columns, x.device)
    segments = -(-columns // (block_columns * segment))
    parts = w.new_empty((3 + asked.sum_pi_squared, segments, rows), dtype=torch.float32)
    top_logits = top_columns = None
    if asked.topk:
        top_logits = parts.new_full((splits, rows, asked.topk), NO_LOGIT)
        top_columns = torch.full_like(top_logits, -1, dtype=torch.int32)
    row_scale = isinstance(scale, Tensor)
    _split_stats[(height * splits,)](
        launch.operand(x, options["block_rows"], options["block_width"], tma),
        launch.operand(w, block_columns, options["block_width"], tma),
        launch.operand(kept.steps, options["block_rows"], block_columns // 2, tma) if kept is not None else None,
        kept.running_max if kept is not None else None,
        parts, top_logits, top_columns,
        x.stride(0), w.stride(0),
        kept.steps.stride(0) if kept is not None else 0,
        kept.running_max.stride(0) if kept is not None else 0,
        parts.stride(0), rows, columns, width,
        kept.steps.shape[1] if kept is not None else 0, height, splits, segment,
        scale if row_scale else None, 1.0 if row_scale else scale, asked.topk,
        scaled=not row_scale and scale != 1, ragged=columns % block_columns != 0,
        even_width=width % options["block_width"] == 0,
        squares=asked.sum_pi_squared, list_size=1 << (asked.topk - 1).bit_length() if asked.topk else 0, **options,
    )  # fmt: skip
    return parts, top_logits, top_columns


def merge_parts(parts: Tensor, row_max: Tensor, sum_exp: Tensor, sum_exp_z: Tensor, squares: Tensor | None) -> None:
    """The maximum and the sums of each row from those of its segments."""
    _, segments, rows = parts.shape
    _merge_parts[(-(-rows // 32),)](
        parts, parts.stride(0), rows, segments, row_max, sum_exp, sum_exp_z, squares, block_rows=32, step=32
    )


@triton.jit
def _split_stats(
    x, w, kept, running_max, parts, top_logits, top_columns,
    x_stride, w_stride, kept_stride, maxima_stride, parts_stride,
    rows, columns, width, kept_columns, height, splits, segment,
    row_scale, scale, topk,
    scaled: tl.constexpr, ragged: tl.constexpr, squares: tl.constexpr, list_size: tl.constexpr,
    tma: tl.constexpr, by_nvidia: tl.constexpr, even_width: tl.constexpr, block_rows: tl.constexpr,
    block_columns: tl.constexpr, block_width: tl.constexpr,
):  # fmt: skip
    # A program keeps to one split: every `splits`-th segment of columns. It takes it down for one block of rows after
    # the other, `height` apart. Nothing is stored inside the innermost loop but what is kept: each store there would
    # make the warps wait for each other after every block.
    split = tl.program_id(0) // height
    column_blocks = tl.cdiv(columns, block_columns)
    for row_block in range(tl.program_id(0) % height, tl.cdiv(rows, block_rows), height):
        row = row_block * block_rows + tl.arange(0, block_rows)
        real = row < rows
        threshold = tl.full((block_rows,), _NO_LOGIT, tl.float32)
        for part in range(split, tl.cdiv(column_blocks, segment), splits):
            row_max = tl.full((block_rows,), _NO_LOGIT, tl.float32)
            sum_exp = tl.zeros((block_rows,), tl.float32)
            sum_exp_z = tl.zeros((block_rows,), tl.float32)
            sum_squares = tl.zeros((block_rows,), tl.float32)
            first_block = part * segment
            for column_block in tl.range(first_block, min(first_block + segment, column_blocks), flatten=tma):
                first_column = column_block * block_columns
                z = block_product(
                    x, w, x_stride, w_stride, row_block * block_rows, first_column, rows, columns, width,
                    tma, even_width, block_rows, block_columns, block_width,
                )  # fmt: skip
                if row_scale is not None:
                    z *= tl.load(row_scale + row, mask=real, other=1.0)[:, None]
                elif scaled:
                    z *= scale
                if ragged:
                    column = first_column + tl.arange(0, block_columns)
                    z = tl.where((column < columns)[None, :], z, _NO_LOGIT)
                if list_size > 0:
                    at = (split.to(tl.int64) * rows + row) * topk
                    lists = (top_logits + at, top_columns + at)
                    threshold = insert_largest(
                        z, first_column, threshold, lists[0], lists[1], real, topk, list_size, block_columns
                    )
                new_max = tl.maximum(row_max, tl.max(z, 1))
                z -= new_max[:, None]
                exp_z = exp(z, by_nvidia)
                max_change = row_max - new_max
                rescale = exp(max_change, by_nvidia)
                sum_exp_z = rescale * (sum_exp_z + sum_exp * max_change) + tl.sum(exp_z * z, 1)
                sum_exp = rescale * sum_exp + tl.sum(exp_z, 1)
                if squares:
                    sum_squares = rescale * rescale * sum_squares + tl.sum(exp_z * exp_z, 1)
                row_max = new_max
                if kept is not None:
                    place = running_max + tl.cast(column_block, tl.int64) * maxima_stride + row
                    tl.store(place, row_max, mask=real & (first_column < kept_columns))
                    # In two halves: the whole block would not fit beside the operands.
                    half_columns: tl.constexpr = block_columns // 2
                    halves = tl.permute(tl.reshape(to_steps(z), (block_rows, 2, half_columns)), (0, 2, 1))
                    left, right = tl.split(halves)
                    first_row = row_block * block_rows
                    store_block(kept, kept_stride, left, first_row, first_column, rows, kept_columns, tma)
                    half = first_column + half_columns
                    store_block(kept, kept_stride, right, first_row, half, rows, kept_columns, tma)
            out = parts + tl.cast(part, tl.int64) * rows + row
            tl.store(out, row_max, mask=real)
            tl.store(out + parts_stride, sum_exp, mask=real)
            tl.store(out + 2 * parts_stride, sum_exp_z, mask=real)
            if squares:
                tl.store(out + 3 * parts_stride, sum_squares, mask=real)


# Compiled once for all numbers of rows and all addresses: how it is compiled decides in which order it adds up.
@triton.jit(do_not_specialize=["rows", "segments"], do_not_specialize_on_alignment=["parts", "parts_stride"])
def _merge_parts(
    parts, parts_stride, rows, segments, row_max, sum_exp, sum_exp_z, squares, block_rows: tl.constexpr,
    step: tl.constexpr,
):  # fmt: skip
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


class TritonBackend(TorchBackend):
    """Fused kernels for 16-bit weights; what they cannot take goes to the torch backend."""

    def forward(self, problem: Problem) -> RowStats:
        """Statistics of every segment of the vocabulary, then of every row."""
        if not fits(problem):
            return super().forward(problem)
        tiles = TritonTiles(problem)
        rows, columns = problem.row_count, problem.chosen
        if rows * tiles.column_count == 0:  # there is no logit
            return super().forward(problem)
        w = problem.weight[: tiles.column_count]
        row_max, sum_exp, sum_exp_z, squared = tiles.new(4, rows)
        chosen = tiles.new(*columns.shape) if columns is not None else None
        kept = grad_kernel.room_to_keep(problem, len(w))
        top: list[tuple[Tensor, Tensor]] = []
        for r in spans(rows, tiles.forward_rows):
            x = tiles.load_rows(r)
            scale = problem.scale[r] if isinstance(problem.scale, Tensor) else problem.scale
            own_kept = kept.rows(r) if kept is not None else None
            parts, logits, places = split_stats(x, w, scale, problem, own_kept)
            if columns is not None and chosen is not None:
                grad_kernel.chosen_logits(x, w, columns[r], scale, chosen[r])
            del x  # or it would live until the next rows are loaded
            merge_parts(parts, row_max[r], sum_exp[r], sum_exp_z[r], squared[r] if problem.sum_pi_squared else None)
            if logits is not None and places is not None:
                top.append(merge_lists(logits, places, sum_exp[r]))
        top_logits, top_columns = map(torch.cat, zip(*top, strict=True)) if top else (None, None)
        return RowStats(
            row_max=row_max,
            sum_exp=sum_exp,
            sum_exp_z=sum_exp_z if problem.entropy else None,
            sum_exp_squared=squared if problem.sum_pi_squared else None,
            chosen=chosen,
            topk_logits=top_logits,
            topk_columns=top_columns,
            kept=() if kept is None else (kept.steps, kept.running_max),
        )

    def backward(self, problem: Problem, grads: RowGrads, hidden_grad: TakeGrad, weight_grad: GradBuffer) -> None:
        """The gradient of each tile of logits, multiplied out into those of hidden states and weight."""
        if not fits(problem):
            super().backward(problem, grads, hidden_grad, weight_grad)
            return
        kept = KeptLogits(*grads.kept) if grads.kept else None
        kept_columns = 0 if kept is None else kept.steps.shape[1]
        tiles = TritonTiles(problem, weight_grad, kept_columns)
        factors = grad_kernel.row_factors(problem, grads)
        terms = {"entropy": grads.entropy_coefficient is not None, "squares": grads.squares_coefficient is not None}
        options = launch.kernel_options(problem.scale, problem.weight.device)
        gradient = grad_kernel.TileGrad(problem.weight[: tiles.column_count], factors, terms, options)
        targets = grad_kernel.TargetGrads(grads, factors) if grads.target_coefficients is not None else None

        def grad_of_tile(x: Tensor, w: Tensor, r: slice, c: slice) -> Tensor:
            if kept is not None and c.start < kept_columns:
                dz = kept.to_grad(factors, r, c, w.dtype, **terms)
            else:
                dz = tiles.gradient_tile(len(x), len(w))
                gradient.write(x, dz, r.start, c.start)
            if targets is not None:
                targets.write(dz, r.start, c.start)
            return dz

        tiles.multiply_out(grad_of_tile, hidden_grad, weight_grad)


def fits(problem: Problem) -> bool:
    """Whether the kernels take this problem: 16 bits, no large top-k, operands that the TMA can read."""
    weight = problem.weight
    # Triton's interpreter, on a CPU, would multiply the bits of bfloat16 as if they were integers.
    narrow = weight.dtype == torch.float16 or (weight.dtype == torch.bfloat16 and weight.is_cuda)
    return narrow and problem.topk <= LARGEST_K and weight.shape[1] % 8 == 0 and launch.tma_can_read(weight)


class TritonTiles(Tiles):
    """The gradient of a tile lies in one buffer, in the weight's dtype; that of kept columns where these were kept."""

    def __init__(self, problem: Problem, weight_grad: GradBuffer = None, kept_columns: int = 0) -> None:
        super().__init__(problem, problem.weight.dtype)
        apart = self.sums_apart(weight_grad, row_tiles=1)
        self.forward_rows, self.tile_rows, self.tile_columns = launch.tile_sizes(problem, self.column_count, apart)
        self.kept_columns = kept_columns
        # Kept columns need no room: all in one product, unless their sums stand apart, in a buffer of their size.
        apart = self.sums_apart(weight_grad, len(self.row_spans()))
        self.kept_step = self.tile_columns if apart else max(1, self.kept_columns)
        self.memory: Tensor | None = None

    def column_spans(self) -> list[slice]:
        """The kept columns, then the others."""
        rest = spans(self.column_count - self.kept_columns, self.tile_columns)
        return [
            *spans(self.kept_columns, self.kept_step),
            *(slice(self.kept_columns + c.start, self.kept_columns + c.stop) for c in rest),
        ]

    def row_operand(self, x: Tensor) -> Tensor:
        """Some hidden states where the TMA can read them."""
        x = super().row_operand(x)
        return x if launch.tma_can_read(x) else x.clone(memory_format=torch.contiguous_format)

    def multiply(self, out: Tensor, a: Tensor, b: Tensor, accumulate: bool) -> None:
        """By the vendor's library, without a copy of the product where it can widen 16 bits to float32."""
        if a.dtype == out.dtype or not out.is_cuda or torch.version.hip is not None:
            # An AMD card, or a CPU for Triton's interpreter, multiplies wide operands.
            super().multiply(out, a.to(out.dtype), b.to(out.dtype), accumulate)
        elif accumulate:
            torch.addmm(out, a, b, out_dtype=out.dtype, out=out)
        else:
            torch.mm(a, b, out_dtype=out.dtype, out=out)

    def gradient_tile(self, rows: int, columns: int) -> Tensor:
        """Room for the gradient of a tile."""
        if self.memory is None:
            self.memory = self.problem.weight.new_empty(self.tile_rows * grad_kernel.padded(self.tile_columns))
        stride = grad_kernel.padded(columns)
        return self.memory[: rows * stride].view(rows, stride)[:, :columns]
