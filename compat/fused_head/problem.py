"""The interface between the operator and its backends: what one receives and returns, and how that is cut into tiles.

A backend knows one rank's shard and nothing of masks, ignored labels, process groups or `main_grad`: it turns a
`Problem` into `RowStats`, and later `RowGrads` into the gradients of hidden states and weight.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

# Stands for "no logit": its exponential is 0, and, unlike -inf, 0 times it is 0 and not NaN.
NO_LOGIT = -1e30
_Value = TypeVar("_Value")


def math_dtype(weight: Tensor) -> torch.dtype:
    """The dtype of softmax, sums and outputs: float32, or float64 for a float64 weight."""
    return torch.float64 if weight.dtype == torch.float64 else torch.float32


def waiting_is_free(tensor: Tensor) -> bool:
    """Whether values can be read at no cost; on an accelerator, reading waits for all queued work."""
    return tensor.is_cpu


def being_captured(tensor: Tensor) -> bool:
    """Whether a CUDA graph is captured now, which cannot wait."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def needed(value: _Value | None) -> _Value:
    """What is there because it was asked for."""
    assert value is not None
    return value


@dataclass(frozen=True, kw_only=True)
class Query:
    """What is asked of the rows of one shard of the vocabulary."""

    rows: Tensor | None = None  # [rows] the tokens to compute, all when None
    chosen: Tensor | None = None  # [rows, k] columns of tokens; outside `0 <= column < columns` it is not this shard's
    labelled: bool = False  # whether the first of them is the label
    scale: float | Tensor = 1.0  # a tensor is [rows, 1]
    columns: int | Tensor  # the first so many columns are vocabulary; a 0-dim tensor where only the device knows
    entropy: bool = False
    sum_pi_squared: bool = False
    topk: int = 0
    tile_bytes: int
    keep_bytes: int = 0  # what the forward may hold for the backward; 0 where no backward follows
    batch_invariant: bool = False
    keep_mask: Tensor | None = None  # [tokens, shard] bool: the columns that take part, and the label's; all when None
    logit_stats: bool = False


@dataclass(frozen=True)
class Problem(Query):
    """Rows of hidden states against one shard of the vocabulary: `logits = hidden[rows] @ weight.T * scale`."""

    hidden: Tensor  # [tokens, h], cast to the weight's dtype before the product
    weight: Tensor  # [shard, h]

    @property
    def row_count(self) -> int:
        """How many rows are computed."""
        return (self.hidden if self.rows is None else self.rows).shape[0]


@dataclass(frozen=True)
class RowStats:
    """Per row, over the columns of one shard; `z` is a logit."""

    row_max: Tensor  # [rows] max z
    sum_exp: Tensor  # [rows] sum exp(z - row_max)
    sum_exp_z: Tensor | None  # [rows] sum exp(z - row_max) * (z - row_max), for the entropy
    sum_exp_squared: Tensor | None  # [rows] sum exp(z - row_max)^2
    chosen: Tensor | None  # [rows, k] z of the chosen columns, 0 where they are not this shard's
    topk_logits: Tensor | None  # [rows, k] descending, NO_LOGIT beyond the shard's columns
    topk_columns: Tensor | None  # [rows, k]
    kept: tuple[Tensor, ...] = ()  # what this backend's backward uses up instead of making it again
    moments: Tensor | None = None  # [4, rows] of the columns that take part: min z, sum z, sum z^2, how many


@dataclass(frozen=True)
class RowGrads:
    """The gradient of a logit: `p * (softmax + entropy * log p + squares * p)`, and more at the chosen columns.

    The log-sum-exp stands in two terms, `lse = row_max + log_sum`, and `log p = z - row_max - log_sum`: where logits
    are large, the sum of the two has lost the digits that `z - row_max` keeps.
    """

    row_max: Tensor  # [rows] over the whole vocabulary
    log_sum: Tensor  # [rows] over the whole vocabulary
    softmax_coefficient: Tensor  # [rows]
    entropy_coefficient: Tensor | None  # [rows]
    squares_coefficient: Tensor | None  # [rows]
    target_coefficients: Tensor | None  # [rows, k] one column may stand there several times: all are added up
    target_columns: Tensor | None  # [rows, k] as `Problem.chosen`: those outside are not this shard's
    target_logprobs: Tensor | None  # [rows, k] `log p` there, as the forward gave it
    kept: tuple[Tensor, ...] = ()  # `RowStats.kept`, the first time


@dataclass(frozen=True)
class WeightGradBuffer:
    """Where the weight's gradient goes: `[shard, h]`, added to what is there or written over it."""

    buffer: Tensor
    accumulate: bool


TakeGrad = Callable[[Tensor], None] | None  # None where a gradient is not needed
GradBuffer = WeightGradBuffer | None


DEFAULT_TILE_BYTES = {"cpu": 16 << 20, "cuda": 512 << 20}
# The block of logits that one program of the fused kernels makes at a time.
BLOCK_ROWS = 128
BLOCK_COLUMNS = 256
BLOCK_WIDTH = 64  # of the hidden size, per step of the product
# Below this width a matrix product is too thin to be fast: split the rows instead.
_THINNEST = 256
# A GPU multiplies matrices of such a width several times faster than odd ones.
_ALIGNED = 128
# Vectors of one number per row that live beside a tile.
_VECTORS = 8


def default_tile_bytes(device_type: str) -> int:
    """The tile size if the caller gives none: cache-friendly on a CPU, wide on a GPU."""
    return DEFAULT_TILE_BYTES.get(device_type, DEFAULT_TILE_BYTES["cuda"])


def tile_cost(problem: Problem, keeps_low_precision: bool) -> tuple[int, int, int]:
    """The bytes of a tile per cell, per row and per column, including the casts of its operands and products."""
    hidden, weight = problem.hidden, problem.weight
    width, number = hidden.shape[1], math_dtype(weight).itemsize
    narrow = weight.dtype.itemsize < number
    cast = number if narrow and not keeps_low_precision else 0
    copied = problem.rows is not None or problem.batch_invariant  # where tiles must not depend on a mask
    row = (hidden.itemsize if copied else 0) + cast
    row += weight.itemsize if hidden.dtype != weight.dtype else 0
    # The logits, and their exponentials or a rounded copy; booleans of a mask; a copy for the smallest logit.
    cell = 2 * number + (2 if problem.keep_mask is not None else 0) + (number + 1 if problem.logit_stats else 0)
    # The cast, the product before it is rounded, and the copy that a CPU's matrix library packs for itself.
    column = (cast + (number if narrow else 0) + number) * width
    return cell, row * width + (_VECTORS + 4 * problem.topk) * 8, column


def plan_tiles(rows: int, columns: int, cost: tuple[int, int, int], budget: int) -> tuple[int, int]:
    """Rows and columns of a tile within `budget` bytes; all rows if that leaves the tile wide enough."""
    rows, columns = max(rows, 1), max(columns, 1)
    cell, row, column = cost
    wide = (budget - rows * row) // (rows * cell + column)
    if wide >= min(columns, _THINNEST):
        return rows, columns if wide >= columns else wide // _ALIGNED * _ALIGNED
    for thin in (min(columns, 2 * _THINNEST), min(columns, 32), 1):
        tall = (budget - thin * column) // (thin * cell + row)
        if tall >= min(rows, 32) or (thin == 1 and tall >= 1):
            return min(rows, tall), thin
    raise ValueError(
        f"tile_bytes: expected at least {sum(cost)} for these tensors (one cell of the logits), got {budget}"
    )


def spans(total: int, size: int) -> Iterator[slice]:
    """Slices of `size` that cover `range(total)`."""
    for start in range(0, total, size):
        yield slice(start, min(start + size, total))


def least_tile_bytes(weight: Tensor) -> int:
    """The least that the fused kernels can do with: a block of gradients, and the sums of its columns in float32."""
    return BLOCK_COLUMNS * (BLOCK_ROWS * weight.itemsize + 4 * weight.shape[1])


def chunk_tile_bytes(chunk_size: int | None, batch: int, weight: Tensor) -> int | None:
    """The bytes of the logits of `chunk_size` positions of the whole batch; None: the default.

    So a chunk size remains an upper bound on memory, although nothing here is cut along the sequence. A bound below the
    minimum of a backend is raised to that minimum.
    """
    if chunk_size is None:
        return None
    if chunk_size < 1:
        raise ValueError(f"chunk_size: expected at least 1, got {chunk_size}")
    rows, width = weight.shape
    number = math_dtype(weight).itemsize
    least = max(16 * number * width + 1024, least_tile_bytes(weight) if weight.itemsize == 2 else 0)
    return min(default_tile_bytes(weight.device.type), max(least, chunk_size * batch * rows * number))


# From the operands of a tile's rows and columns, and where these are, to the gradient of its logits.
GradOfTile = Callable[[Tensor, Tensor, slice, slice], Tensor]


@cache
def product_widens(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether torch.mm gives float32 from operands of this dtype on this device, found out by a small product.

    It learned to in torch 2.8, for CUDA; elsewhere the product is rounded to `dtype` on the way.
    """
    small = torch.ones(8, 8, dtype=dtype, device=device)
    try:
        torch.mm(small, small, out_dtype=torch.float32)
    except torch.OutOfMemoryError:
        raise
    except (TypeError, RuntimeError):  # no such argument, or no such kernel
        return False
    return True


class Tiles:
    """One problem, tile by tile, in memory that is reused."""

    tile_rows: int
    tile_columns: int

    def __init__(self, problem: Problem, operand_dtype: torch.dtype) -> None:
        self.problem, self.dtype, self.operand_dtype = problem, math_dtype(problem.weight), operand_dtype
        self.column_limit = problem.columns if isinstance(problem.columns, Tensor) else None
        self.column_count = problem.weight.shape[0] if isinstance(problem.columns, Tensor) else problem.columns
        self._loaded: tuple[slice, Tensor] | None = None

    def multiply(self, out: Tensor, a: Tensor, b: Tensor, accumulate: bool) -> None:
        """`out (+)= a @ b`, added up in the dtype of `out` where the operands are narrower."""
        if a.dtype == out.dtype:
            out.addmm_(a, b) if accumulate else torch.mm(a, b, out=out)
        else:
            widens = out.dtype == torch.float32 and product_widens(a.device, a.dtype)
            product = torch.mm(a, b, out_dtype=out.dtype) if widens else torch.mm(a, b)
            out.add_(product) if accumulate else out.copy_(product)

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
        """`TorchBackend.backward`, given the gradient of the logits of a tile's rows and columns as an operand.

        The weight's gradient of some columns is added up over all rows, and rounded once.
        """
        columns, rows = self.column_spans(), self.row_spans()
        adds, apart = weight_grad is not None and weight_grad.accumulate, self.sums_apart(weight_grad, len(rows))
        dx = self.new(self.problem.row_count if hidden_grad is not None else 0, self.problem.hidden.shape[1])
        if hidden_grad is not None and not (columns and rows):
            hidden_grad(dx.zero_())
        for c in columns:
            w = self.load_columns(c)
            out = None if weight_grad is None else weight_grad.buffer[c]
            dw = self.new(*out.shape) if out is not None and apart else out
            for r in rows:
                x = self.load_rows(r)
                dz = grad_of_tile(x, w, r, c)
                if hidden_grad is not None:
                    self.multiply(dx[r], dz, w, accumulate=c is not columns[0])
                    if c is columns[-1] and r is rows[-1]:
                        hidden_grad(dx)
                if dw is not None:
                    self.multiply(dw, dz.t(), x, accumulate=r is not rows[0] or (adds and not apart))
                del x, dz  # or they would live until the next ones are made
            if apart and rows:
                needed(out).add_(needed(dw)) if adds else needed(out).copy_(needed(dw))
            del w, dw
        if weight_grad is not None and not weight_grad.accumulate:
            weight_grad.buffer[self.column_count if rows else 0 :].zero_()
