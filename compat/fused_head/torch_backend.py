"""The torch backend: computes and discards one tile of logits after another, on any device; and the choice of one.

Both passes compute a tile by the same product: the backward's softmax matches the forward's sums to the last bit.
"""

import os
import warnings
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from .problem import NO_LOGIT, GradBuffer, GradOfTile, Problem, RowGrads, RowStats, TakeGrad, needed
from .settings import DEFAULT_TILE_BYTES, check_counts, math_dtype

BLOCK_ROWS = 128  # the block of logits that one program of the fused kernels makes at a time
BLOCK_COLUMNS = 256
BLOCK_WIDTH = 64  # of the hidden size, per step of the product
_THINNEST = 256  # below this width a matrix product is too thin to be fast: split the rows instead
_ALIGNED = 128  # a GPU multiplies matrices of such a width several times faster than odd ones
_VECTORS = 8  # of one number per row, that live beside a tile


def tile_cost(problem: Problem, number: int, keeps_low_precision: bool) -> tuple[int, int, int]:
    """The bytes of a tile per cell, row and column with all casts; sums are in numbers of `number` bytes."""
    hidden, weight = problem.hidden, problem.weight
    width = hidden.shape[1]
    narrow = weight.dtype.itemsize < number
    cast = number if narrow and not keeps_low_precision else 0
    row = (hidden.itemsize if problem.rows is not None else 0) + cast
    row += weight.itemsize if hidden.dtype != weight.dtype else 0
    cell = 2 * number  # the logits, and their exponentials or a rounded copy
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
    text = f"at least {sum(cost)} for these tensors (one cell of the logits)"
    raise ValueError(f"tile_bytes: expected {text}, got {budget}")


def spans(total: int, size: int) -> list[slice]:
    """Slices of `size` that cover `range(total)`."""
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def least_tile_bytes(weight: Tensor) -> int:
    """The least that the fused kernels can do with: a block of gradients, and the sums of its columns in float32."""
    return BLOCK_COLUMNS * (BLOCK_ROWS * weight.itemsize + 4 * weight.shape[1])


def chunk_tile_bytes(chunk_size: int | None, batch: int, weight: Tensor) -> int | None:
    """The bytes of the logits of `chunk_size` positions of the batch, or a backend's minimum; None: the default."""
    if chunk_size is None:
        return None
    check_counts(chunk_size=(chunk_size, 1))
    rows, width = weight.shape
    number = math_dtype(weight).itemsize
    least = max(16 * number * width + 1024, least_tile_bytes(weight) if weight.itemsize == 2 else 0)
    most = DEFAULT_TILE_BYTES.get(weight.device.type, DEFAULT_TILE_BYTES["cuda"])
    return min(most, max(least, chunk_size * batch * rows * number))


@cache
def product_widens(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether torch.mm gives float32 from operands of this dtype here (since torch 2.8, for CUDA): tried out."""
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

    def __init__(self, problem: Problem, operand_dtype: torch.dtype | None) -> None:
        self.problem, self.dtype = problem, math_dtype(problem.weight)
        self.operand_dtype = operand_dtype or self.dtype
        self.column_count = problem.columns
        self.row_count = len(problem.hidden if problem.rows is None else problem.rows)
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
        return spans(self.row_count, self.tile_rows)

    def column_spans(self) -> list[slice]:
        """The columns of every tile."""
        return spans(self.column_count, self.tile_columns)

    def sums_apart(self, target: GradBuffer, row_tiles: int) -> bool:
        """Whether the weight's gradient is added up beside a buffer that would round more than the final sum."""
        if target is None or target.buffer.dtype == self.dtype:
            return False
        return target.accumulate or row_tiles > 1 or target.buffer.dtype != self.operand_dtype

    def multiply_out(self, grad_of_tile: GradOfTile, hidden_grad: TakeGrad, weight_grad: GradBuffer) -> None:
        """Add up both gradients, given that of the logits of a tile; the weight's is rounded once for all rows."""
        columns, rows = self.column_spans(), self.row_spans()
        adds, apart = weight_grad is not None and weight_grad.accumulate, self.sums_apart(weight_grad, len(rows))
        dx = self.new(self.row_count if hidden_grad is not None else 0, self.problem.hidden.shape[1])
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


class TorchBackend:
    """The two passes over a shard; neither waits for the device, and only `hidden_grad` may communicate."""

    def forward(self, problem: Problem) -> RowStats:
        """Fold each tile into the rows' running maximum, sums, chosen logits and top-k."""
        tiles, columns = TorchTiles(problem), problem.chosen
        rows, new = tiles.row_count, tiles.buffers.new_zeros
        row_max, sum_exp = new(rows).fill_(NO_LOGIT), new(rows)
        sum_exp_z = new(rows) if problem.entropy else None
        sum_exp_squared = new(rows) if problem.sum_pi_squared else None
        chosen = new(columns.shape) if columns is not None else None
        top_logits = new(rows, problem.topk).fill_(NO_LOGIT) if problem.topk else None
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
        return RowStats(row_max, sum_exp, sum_exp_z, sum_exp_squared, chosen, top_logits, top_columns)

    def backward(self, problem: Problem, grads: RowGrads, hidden_grad: TakeGrad, weight_grad: GradBuffer) -> None:
        """Fill `weight_grad`; pass this shard's part `[rows, h]` of the gradient to `hidden_grad`, once and early.

        It is not shared: the shards are summed in it while `weight_grad` is filled.
        """
        tiles = TorchTiles(problem)

        def grad_of_tile(x: Tensor, w: Tensor, r: slice, c: slice) -> Tensor:
            return _logits_to_grad(tiles.logits(x, w, r, c), tiles, grads, r, c).to(tiles.operand_dtype)

        tiles.multiply_out(grad_of_tile, hidden_grad, weight_grad)


class TorchTiles(Tiles):
    """The logits lie in two buffers of one tile each."""

    def __init__(self, problem: Problem) -> None:
        # A CPU multiplies float32 fastest; a GPU multiplies 16 bits fastest, and adds up in float32 anyway.
        super().__init__(problem, None if problem.weight.is_cpu else problem.weight.dtype)
        cost = tile_cost(problem, self.dtype.itemsize, self.operand_dtype != self.dtype)
        self.tile_rows, self.tile_columns = plan_tiles(self.row_count, self.column_count, cost, problem.tile_bytes)
        self.buffers = self.new(2, self.tile_rows * self.tile_columns)

    def logits(self, x: Tensor, w: Tensor, r: slice, c: slice) -> Tensor:
        """Those of a tile, scaled, in the first buffer."""
        z = self.buffers[0, : len(x) * len(w)].view(len(x), len(w))
        self.multiply(z, x, w.t(), accumulate=False)
        scale = self.problem.scale
        if isinstance(scale, Tensor):
            z.mul_(scale[r])
        elif scale != 1.0:
            z.mul_(scale)
        return z

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
        entropy = scaled_inverse * (0 if grads.entropy_coefficient is None else grads.entropy_coefficient[r])
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


# The least that the fused kernels need. With less every call takes the torch backend, and on a GPU the first says so.
LEAST_TORCH, LEAST_TRITON = "2.8", "3.4"
_AMPERE = 8  # compute capability: the first with bfloat16 in its matrix units
_warned: set[str] = set()


def choose_backend(name: str, device: torch.device) -> TorchBackend:
    """The backend for `device`; a GPU or a call by name that must do without triton is told why, once."""
    reason = "" if name == "torch" else _why_not_triton(device)
    if reason and reason not in _warned and (name == "triton" or device.type == "cuda"):
        _warned.add(reason)
        said = "cannot run here, using 'torch'" if name == "triton" else "uses 'torch' here, and not 'triton'"
        warnings.warn(f"backend={name!r} {said}: {reason}.", RuntimeWarning, stacklevel=6)
    if name == "torch" or reason:
        return TorchBackend()
    from .triton.backend import TritonBackend

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
