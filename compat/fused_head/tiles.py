"""What the backends share: a problem's rows, loaded tile by tile, and the backward's walk over all tiles."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from mcore_unpatch.compat.fused_head.memory import spans
from mcore_unpatch.compat.fused_head.problem import GradBuffer, Problem, TakeGrad, WeightGradBuffer, math_dtype

# From the operands of a tile's rows and columns, and where these are, to the gradient of its logits.
GradOfTile = Callable[[Tensor, Tensor, slice, slice], Tensor]


class Tiles(ABC):
    """One problem, tile by tile, in memory that is reused."""

    tile_rows: int
    tile_columns: int

    def __init__(self, problem: Problem, operand_dtype: torch.dtype) -> None:
        self.problem, self.dtype, self.operand_dtype = problem, math_dtype(problem.weight), operand_dtype
        self.column_limit = problem.columns if isinstance(problem.columns, Tensor) else None
        self.column_count = problem.weight.shape[0] if isinstance(problem.columns, Tensor) else problem.columns
        self._loaded: tuple[slice, Tensor] | None = None

    @abstractmethod
    def multiply(self, out: Tensor, a: Tensor, b: Tensor, accumulate: bool) -> None:
        """`out (+)= a @ b`, added up in the dtype of `out` where the operands are narrower."""

    def new(self, *shape: int) -> Tensor:
        """An empty tensor in the math dtype."""
        return self.problem.weight.new_empty(shape, dtype=self.dtype)

    def load_rows(self, r: slice) -> Tensor:
        """The operand of these rows. Release it before loading others: `tile_bytes` counts only one."""
        if self._loaded is None or self._loaded[0] != r:
            self._loaded = None
            hidden, rows = self.problem.hidden, self.problem.rows
            self._loaded = r, self.row_operand(hidden[r] if rows is None else hidden.index_select(0, rows[r]))
        return self._loaded[1]

    def row_operand(self, x: Tensor) -> Tensor:
        """Hidden states in the dtype of the products."""
        return x.to(self.problem.weight.dtype).to(self.operand_dtype)

    def load_columns(self, c: slice) -> Tensor:
        """These rows of the weight in the dtype of the products."""
        return self.problem.weight[c].to(self.operand_dtype)

    def row_spans(self) -> list[slice]:
        """The rows of every tile."""
        return list(spans(self.problem.row_count, self.tile_rows))

    def column_spans(self) -> list[slice]:
        """The columns of every tile."""
        return list(spans(self.column_count, self.tile_columns))

    def sums_apart(self, target: GradBuffer, row_tiles: int) -> bool:
        """Whether the weight's gradient is added up beside a buffer that would round more than the final sum."""
        if target is None or target.buffer.dtype == self.dtype:
            return False
        return target.accumulate or row_tiles > 1 or target.buffer.dtype != self.operand_dtype

    def multiply_out(self, grad_of_tile: GradOfTile, hidden_grad: TakeGrad, weight_grad: GradBuffer) -> None:
        """`Backend.backward`, given the gradient of the logits of a tile's rows and columns as an operand."""
        columns, rows = self.column_spans(), self.row_spans()
        dx = self.new(self.problem.row_count, self.problem.hidden.shape[1]) if hidden_grad is not None else None
        if hidden_grad is not None and dx is not None and not (columns and rows):
            hidden_grad(dx.zero_())
        for c in columns:
            w = self.load_columns(c)
            dw = _ColumnGrad(self, weight_grad, c, len(rows)) if weight_grad is not None else None
            for r in rows:
                x = self.load_rows(r)
                dz = grad_of_tile(x, w, r, c)
                if hidden_grad is not None and dx is not None:
                    self.multiply(dx[r], dz, w, accumulate=c is not columns[0])
                    if c is columns[-1] and r is rows[-1]:
                        hidden_grad(dx)
                if dw is not None:
                    dw.add(dz.t(), x)
                del x, dz  # or they would live until the next ones are made
            if dw is not None:
                dw.store()
            del w, dw
        if weight_grad is not None and not weight_grad.accumulate:
            weight_grad.buffer[self.column_count if rows else 0 :].zero_()


class _ColumnGrad:
    """The gradient of some columns over all rows, rounded once."""

    def __init__(self, tiles: Tiles, target: WeightGradBuffer, c: slice, row_tiles: int) -> None:
        self.multiply, self.out, self.accumulate = tiles.multiply, target.buffer[c], target.accumulate
        self.apart = tiles.sums_apart(target, row_tiles)
        self.sum = tiles.new(*self.out.shape) if self.apart else self.out
        self.started = self.accumulate and not self.apart

    def add(self, a: Tensor, b: Tensor) -> None:
        self.multiply(self.sum, a, b, self.started)
        self.started = True

    def store(self) -> None:
        if self.apart and self.started:
            self.out.add_(self.sum) if self.accumulate else self.out.copy_(self.sum)
