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
from mcore_unpatch.compat.ops.torch_backend import TorchBackend
from mcore_unpatch.compat.ops.triton.grad_kernel import TileGrad, row_factors
from mcore_unpatch.compat.ops.triton.launch import can_be_described
from mcore_unpatch.compat.ops.triton.products import multiply, multiply_add
from mcore_unpatch.compat.ops.triton.stats_kernel import lane_stats, merge_lanes
from mcore_unpatch.compat.ops.triton.tile_sizes import tile_sizes

# Rows of a tile of gradients begin at multiples of so many numbers: the copy engine and fast products ask for it.
_ALIGNED = 64


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
                tiles.limit,
                targets[r] if targets is not None else None,
                target[r] if targets is not None else None,
            )
            merge_lanes(parts, peak[r], total[r], drift[r])
        return RowStats(
            peak, total, drift if problem.entropy else None, target if targets is not None else None, None, None
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
        tiles = _Tiles(problem)
        dx = tiles.new(problem.row_count, problem.hidden.shape[1]) if hidden_grad else None
        gradient = TileGrad(
            problem.weight[: tiles.column_count],
            row_factors(problem, grads),
            tiles.limit,
            problem.targets if grads.target is not None else None,
            grads.entropy is not None,
        )
        column_spans = list(spans(tiles.column_count, tiles.sizes.columns))
        row_spans = list(spans(problem.row_count, tiles.sizes.rows))
        if dx is not None and hidden_grad is not None and not (column_spans and row_spans):
            hidden_grad(dx.zero_())
        for c in column_spans:
            w = problem.weight[c]
            dw = _ColumnGrad(weight_grad, c, len(row_spans) > 1) if weight_grad is not None else None
            for r in row_spans:
                x = tiles.load_rows(r)
                dz = tiles.gradient_tile(len(x), len(w))
                gradient.write(x, dz, r.start, c.start)
                if dx is not None and hidden_grad is not None:
                    (multiply_add if c.start else multiply)(dz, w, dx[r])
                    if c is column_spans[-1] and r is row_spans[-1]:
                        hidden_grad(dx)
                if dw is not None:
                    dw.add(dz.t(), x)
            if dw is not None:
                dw.store()
        if weight_grad is not None and not weight_grad.accumulate:
            weight_grad.buffer[0 if problem.row_count == 0 else tiles.column_count :].zero_()


def _fits(problem: Problem) -> bool:
    """Whether the kernels take this problem: no top-k, 16 bits, and a weight that the copy engine can read."""
    weight = problem.weight
    # Triton's interpreter, on a CPU, would multiply the bits of bfloat16 as if they were integers.
    narrow = weight.dtype == torch.float16 or (weight.dtype == torch.bfloat16 and weight.is_cuda)
    return narrow and problem.topk == 0 and can_be_described(weight)


class _Tiles:
    """Operands and gradients of one problem, tile by tile, in memory that is used again and again."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.limit = problem.columns if isinstance(problem.columns, Tensor) else None
        self.column_count = problem.columns if isinstance(problem.columns, int) else problem.weight.shape[0]
        self.sizes = tile_sizes(problem, self.column_count)
        self.memory: Tensor | None = None
        self.loaded: tuple[slice, Tensor] | None = None

    def new(self, *shape: int) -> Tensor:
        return self.problem.weight.new_empty(shape, dtype=torch.float32)

    def load_rows(self, r: slice) -> Tensor:
        if self.loaded is None or self.loaded[0] != r:
            self.loaded = None  # the old rows go before the new ones come
            hidden, rows = self.problem.hidden, self.problem.rows
            x = (hidden[r] if rows is None else hidden.index_select(0, rows[r])).to(self.problem.weight.dtype)
            self.loaded = r, x if can_be_described(x) else x.clone(memory_format=torch.contiguous_format)
        return self.loaded[1]

    def gradient_tile(self, rows: int, columns: int) -> Tensor:
        """Room for the gradient of a tile."""
        if self.memory is None:
            self.memory = self.problem.weight.new_empty(self.sizes.rows * _padded(self.sizes.columns))
        stride = _padded(columns)
        return self.memory[: rows * stride].view(rows, stride)[:, :columns]


def _padded(columns: int) -> int:
    return -(-columns // _ALIGNED) * _ALIGNED


class _ColumnGrad:
    """The gradient of some columns over all rows; where rows come in blocks, it is added up in float32 first."""

    def __init__(self, target: WeightGradBuffer, c: slice, in_blocks: bool) -> None:
        self.out = target.buffer[c]
        self.accumulate = target.accumulate
        self.apart = self.out.dtype != torch.float32 and (in_blocks or self.accumulate)
        self.sum = self.out.new_empty(self.out.shape, dtype=torch.float32) if self.apart else self.out
        self.started = self.accumulate and not self.apart

    def add(self, a: Tensor, b: Tensor) -> None:
        (multiply_add if self.started else multiply)(a, b, self.sum)
        self.started = True

    def store(self) -> None:
        if self.apart and self.started:
            if self.accumulate:
                self.out.add_(self.sum)
            else:
                self.out.copy_(self.sum)
