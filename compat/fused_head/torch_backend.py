"""The torch backend: computes and discards one tile of logits after another, on any device; and the choice of one.

Forward and backward compute each tile by the same product of the same shape, so the backward's softmax matches the
forward's log-sum-exp to the last bit.
"""

import os
import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from mcore_unpatch.compat.fused_head.problem import (
    NO_LOGIT,
    GradBuffer,
    Problem,
    RowGrads,
    RowStats,
    TakeGrad,
    Tiles,
    math_dtype,
    plan_tiles,
    tile_cost,
)


class TorchBackend:
    """The two passes over a shard, here by vocabulary tiles in plain PyTorch.

    Neither waits for the device, and only `hidden_grad` may communicate.
    """

    def forward(self, problem: Problem) -> RowStats:
        """Fold each tile into the rows' running maximum, sums, chosen logits and top-k."""
        return self.fold(problem, self._tile_rows(problem))

    def _tile_rows(self, problem: Problem) -> int | None:
        return rows_of_a_tile(problem, self.fold) if problem.batch_invariant else None

    def fold(self, problem: Problem, tile_rows: int | None = None) -> RowStats:
        """The same, in tiles of this many rows; None: as many as fit."""
        tiles = TorchTiles(problem, tile_rows)
        rows, columns = problem.row_count, problem.chosen
        row_max = tiles.new(rows).fill_(NO_LOGIT)
        sum_exp = tiles.new(rows).zero_()
        sum_exp_z = tiles.new(rows).zero_() if problem.entropy else None
        sum_exp_squared = tiles.new(rows).zero_() if problem.sum_pi_squared else None
        chosen = tiles.new(*columns.shape).zero_() if columns is not None else None
        moments = tiles.new(4, rows).zero_() if problem.logit_stats else None
        if moments is not None:
            moments[0] = torch.inf
        top_logits = tiles.new(rows, problem.topk).fill_(NO_LOGIT) if problem.topk else None
        top_columns = None if top_logits is None else torch.full_like(top_logits, -1, dtype=torch.int64)
        for r in tiles.row_spans():
            x = tiles.load_rows(r)
            for c in tiles.column_spans():
                z = tiles.logits(x, tiles.load_columns(c), r, c)
                if columns is not None and chosen is not None:
                    column, inside = _within(columns[r], c)
                    chosen[r] = torch.where(inside, z.gather(1, column), chosen[r])
                if top_logits is not None and top_columns is not None:
                    best, where = z.topk(min(problem.topk, z.shape[1]), dim=1)
                    top_logits[r], taken = torch.cat([top_logits[r], best], dim=1).topk(problem.topk, dim=1)
                    top_columns[r] = torch.cat([top_columns[r], where + c.start], dim=1).gather(1, taken)
                if moments is not None:
                    counts = ~(z <= NO_LOGIT / 2)  # so that a NaN counts
                    moments[0, r] = torch.minimum(moments[0, r], z.where(counts, torch.inf).amin(1))
                    spare = torch.mul(z, counts, out=tiles.second(z))
                    moments[1, r] += spare.sum(1)
                    moments[2, r] += spare.square_().sum(1)
                    moments[3, r] += counts.sum(1)
                new_max = torch.maximum(row_max[r], z.amax(1))
                max_change = row_max[r] - new_max
                rescale = max_change.exp()
                z.sub_(new_max[:, None])
                if sum_exp_z is None:
                    exp_z = z.exp_()
                else:
                    exp_z = torch.exp(z, out=tiles.second(z))
                    sum_exp_z[r] = rescale * (sum_exp_z[r] + sum_exp[r] * max_change) + z.mul_(exp_z).sum(1)
                sum_exp[r] = sum_exp[r] * rescale + exp_z.sum(1)
                if sum_exp_squared is not None:
                    sum_exp_squared[r] = sum_exp_squared[r] * rescale * rescale + exp_z.square_().sum(1)
                row_max[r] = new_max
            del x  # or it would live until the next rows are loaded
        return RowStats(row_max, sum_exp, sum_exp_z, sum_exp_squared, chosen, top_logits, top_columns, moments=moments)

    def backward(self, problem: Problem, grads: RowGrads, hidden_grad: TakeGrad, weight_grad: GradBuffer) -> None:
        """Fill `weight_grad`; pass this shard's part of the rows' gradient to `hidden_grad`, once and early.

        That part is `[rows, h]` in the math dtype and must not be shared: the shards are summed in it while the backend
        finishes the weight's gradient. Each tile is made again, turned into its own gradient in place, and multiplied.
        """
        tiles = TorchTiles(problem, self._tile_rows(problem))

        def grad_of_tile(x: Tensor, w: Tensor, r: slice, c: slice) -> Tensor:
            return _logits_to_grad(tiles.logits(x, w, r, c), tiles, grads, r, c).to(tiles.operand_dtype)

        tiles.multiply_out(grad_of_tile, hidden_grad, weight_grad)


class TorchTiles(Tiles):
    """The logits lie in two buffers of one tile each. With `tile_rows`, all products have that many rows."""

    def __init__(self, problem: Problem, tile_rows: int | None = None) -> None:
        # A CPU multiplies float32 fastest; a GPU multiplies 16 bits fastest, and adds up in float32 anyway.
        on_cpu = problem.weight.device.type == "cpu"
        super().__init__(problem, math_dtype(problem.weight) if on_cpu else problem.weight.dtype)
        cost = tile_cost(problem, self.operand_dtype != self.dtype)
        rows = tile_rows or problem.row_count
        self.tile_rows, self.tile_columns = plan_tiles(rows, self.column_count, cost, problem.tile_bytes)
        self.fills_up = tile_rows is not None
        if tile_rows is not None:  # a power of two: what is left of it divides it
            self.tile_rows = 1 << (self.tile_rows.bit_length() - 1)
        self.buffers = self.new(2, self.tile_rows * self.tile_columns)

    def logits(self, x: Tensor, w: Tensor, r: slice, c: slice) -> Tensor:
        """Those of a tile, scaled, in the first buffer; NO_LOGIT where a column does not take part."""
        missing = self.tile_rows - len(x) if self.fills_up else 0
        if missing:
            x = torch.cat([x, x.new_zeros(missing, x.shape[1])])
        z = self.buffers[0, : len(x) * len(w)].view(len(x), len(w))
        self.multiply(z, x, w.t(), accumulate=False)
        z = z[: len(x) - missing]
        scale = self.problem.scale
        if isinstance(scale, Tensor):
            z.mul_(scale[r])
        elif scale != 1.0:
            z.mul_(scale)
        if self.column_limit is not None:
            excluded = torch.arange(c.start, c.stop, device=z.device) >= self.column_limit
            z.masked_fill_(excluded, NO_LOGIT)
        if self.problem.keep_mask is not None:
            z.masked_fill_(self._left_out(self.problem.keep_mask, r, c), NO_LOGIT)
        return z

    def _left_out(self, keep_mask: Tensor, r: slice, c: slice) -> Tensor:
        rows, chosen = self.problem.rows, self.problem.chosen
        left_out = ~(keep_mask[r, c] if rows is None else keep_mask[rows[r], c])
        if chosen is not None and self.problem.labelled:
            column, inside = _within(chosen[r, :1], c)
            left_out.scatter_(1, column, left_out.gather(1, column) & ~inside)
        return left_out

    def second(self, z: Tensor) -> Tensor:
        """The second buffer in the shape of `z`."""
        return self.buffers[1, : z.numel()].view(z.shape)


def _logits_to_grad(z: Tensor, tiles: TorchTiles, grads: RowGrads, r: slice, c: slice) -> Tensor:
    """Overwrite the tile `z` with the gradient of its raw product, `scale` included."""
    scale = tiles.problem.scale
    scale = scale[r].squeeze(1) if isinstance(scale, Tensor) else scale
    z.sub_(grads.row_max[r, None])
    # p = exp(z) / sum_exp: the division is folded into the rows' factors, so that a tile is passed over less often.
    inverse_sum = (-grads.log_sum[r]).exp()
    scaled_inverse = scale * inverse_sum
    softmax = scaled_inverse * grads.softmax_coefficient[r]
    if grads.entropy_coefficient is None and grads.squares_coefficient is None:
        dz = z.exp_().mul_(softmax[:, None])
    else:
        exp_z = torch.exp(z, out=tiles.second(z))
        entropy = torch.zeros_like(softmax)
        if grads.entropy_coefficient is not None:
            entropy = scaled_inverse * grads.entropy_coefficient[r]
        softmax = softmax - entropy * grads.log_sum[r]
        dz = torch.addcmul(softmax[:, None], z, entropy[:, None], out=z)
        if grads.squares_coefficient is not None:
            dz.addcmul_(exp_z, (scaled_inverse * inverse_sum * grads.squares_coefficient[r])[:, None])
        dz.mul_(exp_z)
    if grads.target_coefficients is not None and grads.target_columns is not None:
        factor = scale[:, None] if isinstance(scale, Tensor) else scale
        column, inside = _within(grads.target_columns[r], c)  # those outside of the tile add 0 somewhere
        dz.scatter_add_(1, column, torch.where(inside, factor * grads.target_coefficients[r], 0.0))
    return dz


def _within(columns: Tensor, c: slice) -> tuple[Tensor, Tensor]:
    """Columns as seen from the tile, clamped into it, and which of them truly lie in it."""
    local = columns - c.start
    return local.clamp(0, c.stop - c.start - 1), (local >= 0) & (local < c.stop - c.start)


# Rows whose results have the same bits whatever rows stand beside them, from products that do not promise it: a matrix
# product adds up in an order that depends on the shapes, and may depend on a row's place among the others. So all tiles
# get one and the same number of rows, the last filled up, and that number is one for which all places were seen to give
# the same bits for the same row: tried once for each kind of product. One row at a time is always such a number.
_TRIED = (64, 16, 4)
_found: dict[tuple[Any, ...], int] = {}


def rows_of_a_tile(problem: Problem, fold: Callable[[Problem, int], RowStats]) -> int:
    """Tried with this problem's weight and one row in every place; waits for the device, once for a kind of product."""
    weight, wanted = problem.weight, (problem.entropy, problem.sum_pi_squared, problem.topk)
    threads = torch.get_num_threads() if weight.device.type == "cpu" else 0
    scaled = isinstance(problem.scale, Tensor) or problem.scale != 1.0
    product = (weight.device, weight.dtype, weight.shape, problem.hidden.dtype)
    kind = (*product, problem.tile_bytes, *wanted, scaled, threads)
    if kind not in _found:
        _found[kind] = next((size for size in _TRIED if _same_everywhere(problem, fold, size)), 1)
    return _found[kind]


def _same_everywhere(problem: Problem, fold: Callable[[Problem, int], RowStats], size: int) -> bool:
    generator = torch.Generator().manual_seed(0)
    row = torch.randn(1, problem.hidden.shape[1], generator=generator).to(problem.hidden)
    scale = problem.scale
    if isinstance(scale, Tensor):
        scale = scale.new_full((size, 1), 0.7)
    trial = replace(
        problem, hidden=row.expand(size, -1).contiguous(), rows=None, chosen=None, scale=scale, keep_mask=None,
        logit_stats=False,
    )  # fmt: skip
    stats = fold(trial, size)
    values = [value for f in fields(stats) if isinstance(value := getattr(stats, f.name), Tensor)]
    return all(bool((value == value[:1]).all()) for value in values)


# The least that the fused kernels need. With less every call takes the torch backend, and on a GPU the first says so.
LEAST_TORCH, LEAST_TRITON = "2.8", "3.4"
_AMPERE = 8  # compute capability: the first with bfloat16 in its matrix units
_warned: set[str] = set()


def choose_backend(name: str, device: torch.device, only_torch: str = "") -> TorchBackend:
    """The backend for `device`; a GPU or a call by name that must do without triton is told why, once.

    `only_torch` names a feature of the call that the triton backend lacks.
    """
    reason = "" if name == "torch" else f"it does not support {only_torch}" if only_torch else _why_not_triton(device)
    surprising = name == "triton" or (device.type == "cuda" and not only_torch)
    if reason and surprising and reason not in _warned:
        _warned.add(reason)
        said = "cannot run here, using 'torch'" if name == "triton" else "uses 'torch' here, and not 'triton'"
        warnings.warn(f"backend={name!r} {said}: {reason}.", RuntimeWarning, stacklevel=5)
    if name == "torch" or reason:
        return TorchBackend()
    from mcore_unpatch.compat.fused_head.triton.backend import TritonBackend

    return TritonBackend()


def _why_not_triton(device: torch.device) -> str:
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"the tensors are on {device.type}, and it needs a CUDA device"
    if missing := missing_for_triton():
        return missing
    nvidia = device.type == "cuda" and torch.version.hip is None
    if nvidia and torch.cuda.get_device_capability(device)[0] < _AMPERE:
        return f"its kernels need Ampere or newer, and this GPU is {torch.cuda.get_device_name(device)}"
    return ""


def missing_for_triton() -> str:
    """What keeps the fused kernels from running here, as far as that is known before a device is; else nothing."""
    if find_spec("triton") is None:
        return f"triton is not installed; install triton {LEAST_TRITON} or newer"
    if find_spec("triton.tools.tensor_descriptor") is None:
        return f"this triton has no tensor descriptors; install triton {LEAST_TRITON} or newer"
    if not hasattr(torch.ops.aten.addmm, "dtype_out"):
        return f"torch {torch.__version__} cannot sum 16-bit products in float32; install torch {LEAST_TORCH} or newer"
    return ""
