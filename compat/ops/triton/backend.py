"""The triton backend: two kernels that make logits and use them up on the spot, and plain products for the gradients.

The forward keeps three numbers per row and lane of the vocabulary. The backward makes the gradient of a tile of
logits, as wide as the memory allows, and multiplies it out. Both kernels make logits by the same instructions, so the
backward's softmax belongs to the forward's log-sum-exp to the last bit.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from mcore_unpatch.compat.ops.seam import NO_LOGIT, Problem, RowGrads, RowStats, WeightGradBuffer
from mcore_unpatch.compat.ops.tile_plan import spans
from mcore_unpatch.compat.ops.tiles import Tiles
from mcore_unpatch.compat.ops.torch_backend import TorchBackend
from mcore_unpatch.compat.ops.triton.grad_kernel import TileGrad, row_factors
from mcore_unpatch.compat.ops.triton.launch import can_be_described
from mcore_unpatch.compat.ops.triton.products import multiply, multiply_add
from mcore_unpatch.compat.ops.triton.stats_kernel import lane_stats, merge_lanes
from mcore_unpatch.compat.ops.triton.tile_sizes import tile_sizes

# Rows of a tile of gradients begin at multiples of so many numbers: the copy engine and fast products ask for it.
_STRIDE_STEP = 64


class TritonBackend:
    """Fused kernels for 16-bit weights; what they cannot take goes to the torch backend."""

    def forward(self, problem: Problem) -> RowStats:
        """Statistics of every lane of the vocabulary, then of every row."""
        if not _fits(problem):
            return TorchBackend().forward(problem)
        tiles = _Tiles(problem)
        peak, total, drift, target = tiles.new(4, problem.row_count).zero_()
        targets = problem.targets
        w = problem.weight[: tiles.column_count]
        peak.fill_(NO_LOGIT)
        for r in spans(problem.row_count if len(w) else 0, tiles.sizes.forward_rows):
            parts = lane_stats(
                tiles.load_rows(r),
                w,
                problem.scale[r] if isinstance(problem.scale, Tensor) else problem.scale,
                tiles.column_limit,
                targets[r] if targets is not None else None,
                target[r] if targets is not None else None,
            )
            merge_lanes(parts, peak[r], total[r], drift[r])
        return RowStats(
            peak,
            total,
            drift if problem.entropy else None,
            None,
            target if targets is not None else None,
            None,
            None,
            None,
        )

    def backward(
        self,
        problem: Problem,
        grads: RowGrads,
        hidden_grad: Callable[[Tensor], None] | None,
        weight_grad: WeightGradBuffer | None,
    ) -> None:
        """The gradient of each tile of logits, multiplied out into those of hidden states and weight."""
        if not _fits(problem):
            TorchBackend().backward(problem, grads, hidden_grad, weight_grad)
            return
        tiles = _Tiles(problem, weight_grad)
        gradient = TileGrad(
            problem.weight[: tiles.column_count],
            problem.scale,
            row_factors(problem, grads),
            tiles.column_limit,
            problem.targets if grads.points is not None else None,
            grads.entropy is not None,
        )

        def grad_of_tile(x: Tensor, w: Tensor, r: slice, c: slice) -> Tensor:
            dz = tiles.gradient_tile(len(x), len(w))
            gradient.write(x, dz, r.start, c.start)
            return dz

        tiles.multiply_out(grad_of_tile, hidden_grad, weight_grad)


def _fits(problem: Problem) -> bool:
    """Whether the kernels take this problem: no top-k, 16 bits, and operands that the copy engine can read."""
    weight = problem.weight
    # Triton's interpreter, on a CPU, would multiply the bits of bfloat16 as if they were integers.
    narrow = weight.dtype == torch.float16 or (weight.dtype == torch.bfloat16 and weight.is_cuda)
    plain = problem.topk == 0 and problem.points is None and not problem.squares and not problem.batch_invariant
    return narrow and plain and weight.shape[1] % 8 == 0 and can_be_described(weight)


class _Tiles(Tiles):
    """The gradient of a tile of logits lies in one buffer, in the weight's dtype."""

    def __init__(self, problem: Problem, weight_grad: WeightGradBuffer | None = None) -> None:
        super().__init__(problem, problem.weight.dtype)
        self.sizes = tile_sizes(problem, self.column_count, self.sums_apart(weight_grad, row_tiles=1))
        self.tile_rows, self.tile_columns = self.sizes.rows, self.sizes.columns
        self.memory: Tensor | None = None

    def row_operand(self, x: Tensor) -> Tensor:
        x = super().row_operand(x)
        return x if can_be_described(x) else x.clone(memory_format=torch.contiguous_format)

    def multiply(self, out: Tensor, a: Tensor, b: Tensor, accumulate: bool) -> None:
        (multiply_add if accumulate else multiply)(a, b, out)

    def gradient_tile(self, rows: int, columns: int) -> Tensor:
        """Room for the gradient of a tile."""
        if self.memory is None:
            self.memory = self.problem.weight.new_empty(self.tile_rows * _padded(self.tile_columns))
        stride = _padded(columns)
        return self.memory[: rows * stride].view(rows, stride)[:, :columns]


def _padded(columns: int) -> int:
    return -(-columns // _STRIDE_STEP) * _STRIDE_STEP
