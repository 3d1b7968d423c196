"""The triton backend: two kernels that make logits and use them up on the spot, and plain products for the gradients.

Both make logits by the same instructions: the backward's softmax belongs to the forward's sums to the last bit.
"""

import torch
from torch import Tensor

from mcore_unpatch.compat.fused_head.problem import GradBuffer, Problem, RowGrads, RowStats, TakeGrad
from mcore_unpatch.compat.fused_head.torch_backend import Tiles, TorchBackend, spans
from mcore_unpatch.compat.fused_head.triton.chosen_columns import TargetGrads, chosen_logits
from mcore_unpatch.compat.fused_head.triton.grad_kernel import KeptLogits, TileGrad, padded, room_to_keep, row_factors
from mcore_unpatch.compat.fused_head.triton.launch import kernel_options, tile_sizes, tma_can_read
from mcore_unpatch.compat.fused_head.triton.stats_kernel import LARGEST_K, merge_lists, merge_parts, split_stats


class TritonBackend(TorchBackend):
    """Fused kernels for 16-bit weights; what they cannot take goes to the torch backend."""

    def forward(self, problem: Problem) -> RowStats:
        """Statistics of every segment of the vocabulary, then of every row."""
        if not fits(problem):
            return super().forward(problem)
        tiles = TritonTiles(problem)
        rows, columns = problem.row_count, problem.chosen
        if rows == 0 or tiles.column_count == 0:
            return super().forward(problem)  # where there is no logit
        w = problem.weight[: tiles.column_count]
        row_max, sum_exp, sum_exp_z, squared = tiles.new(4, rows)
        chosen = tiles.new(*columns.shape) if columns is not None else None
        kept = room_to_keep(problem, len(w))
        top: list[tuple[Tensor, Tensor]] = []
        for r in spans(rows, tiles.forward_rows):
            x = tiles.load_rows(r)
            scale = problem.scale[r] if isinstance(problem.scale, Tensor) else problem.scale
            own_kept = kept.rows(r) if kept is not None else None
            parts, logits, places = split_stats(x, w, scale, problem, own_kept)
            if columns is not None and chosen is not None:
                chosen_logits(x, w, columns[r], scale, chosen[r])
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
        factors = row_factors(problem, grads)
        terms = {"entropy": grads.entropy_coefficient is not None, "squares": grads.squares_coefficient is not None}
        options = kernel_options(problem.scale, problem.weight.device)
        gradient = TileGrad(problem.weight[: tiles.column_count], factors, terms, options)
        targets = TargetGrads(grads, factors) if grads.target_coefficients is not None else None

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
    return narrow and problem.topk <= LARGEST_K and weight.shape[1] % 8 == 0 and tma_can_read(weight)


class TritonTiles(Tiles):
    """The gradient of a tile lies in one buffer, in the weight's dtype; that of kept columns where these were kept."""

    def __init__(self, problem: Problem, weight_grad: GradBuffer = None, kept_columns: int = 0) -> None:
        super().__init__(problem, problem.weight.dtype)
        apart = self.sums_apart(weight_grad, row_tiles=1)
        self.forward_rows, self.tile_rows, self.tile_columns = tile_sizes(problem, self.column_count, apart)
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
        return x if tma_can_read(x) else x.clone(memory_format=torch.contiguous_format)

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
            self.memory = self.problem.weight.new_empty(self.tile_rows * padded(self.tile_columns))
        stride = padded(columns)
        return self.memory[: rows * stride].view(rows, stride)[:, :columns]
