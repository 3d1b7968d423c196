"""How the fused kernels are launched: one program per multiprocessor, operands read by Hopper's TMA or by pointers."""

from functools import cache, lru_cache
from math import frexp, prod
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ..problem import Problem
from ..torch_backend import BLOCK_COLUMNS, BLOCK_ROWS, BLOCK_WIDTH, least_tile_bytes

# The most rows of a forward launch and of a tile of gradients, whatever the memory: more are no faster.
_MOST_ROWS = 32_768
# Four blocks of rows by 33 of columns are one turn of a Hopper's 132 multiprocessors: with 32, four would stand idle.
_TURN_COLUMNS = 33 * BLOCK_COLUMNS
# A tile of gradients has at least so many bytes, or all columns: with fewer, few rows would mean many short launches.
_ENOUGH_BYTES = 128 << 20


def tile_sizes(problem: Problem, columns: int, sums_apart: bool) -> tuple[int, int, int]:
    """The rows of a forward launch, and the rows and columns of a tile of gradients.

    `tile_bytes` bounds a tile with the float32 sums of its columns, where these are apart, and a copy of its rows.
    """
    rows, budget = max(problem.row_count, 1), problem.tile_bytes
    cell, column_sum = problem.weight.itemsize, 4 * problem.weight.shape[1]
    least = least_tile_bytes(problem.weight)
    if budget < least:
        raise ValueError(f"tile_bytes: expected at least {least} for these tensors and this backend, got {budget}")
    most = min(_MOST_ROWS, max(BLOCK_ROWS, budget // max(1, _copied_bytes(problem))))
    tall = min(rows, most, budget // (BLOCK_COLUMNS * cell))
    beside = column_sum if sums_apart or tall < rows else 0
    tall = min(tall, (budget // BLOCK_COLUMNS - beside) // cell)
    if tall < rows:
        tall, beside = tall // BLOCK_ROWS * BLOCK_ROWS, column_sum
    turns = max(1, round(_ENOUGH_BYTES / (tall * cell * _TURN_COLUMNS)))
    wide = min(budget // (tall * cell + beside), turns * _TURN_COLUMNS) // BLOCK_COLUMNS * BLOCK_COLUMNS
    return rows if rows <= most else most // BLOCK_ROWS * BLOCK_ROWS, tall, min(max(columns, 1), wide)


def _copied_bytes(problem: Problem) -> int:
    """Bytes of the copies of one row: gathered by a mask, cast, or moved to where the TMA can read it."""
    hidden, weight = problem.hidden, problem.weight
    gathered = hidden.itemsize if problem.rows is not None else 0
    cast = weight.itemsize if hidden.dtype != weight.dtype else 0
    moved = 0 if gathered or cast or tma_can_read(hidden) else weight.itemsize
    return hidden.shape[1] * (gathered + cast + moved)


_TALLEST = 16  # blocks of rows at a time in the forward: they stay in the cache while the columns pass
_TMA_BYTES = 16  # what the TMA asks of every address and row
_HOPPER = 9  # compute capability
# Blocks of columns whose statistics are summed before they are stored: a number that does not depend on the rows.
_SEGMENT = 4


@cache
def has_tma(device: torch.device) -> bool:
    """Whether the kernels read and write by Hopper's TMA; elsewhere they use plain pointers."""
    return device.type != "cuda" or (
        torch.version.hip is None and torch.cuda.get_device_capability(device)[0] == _HOPPER
    )


def by_nvidia(device: torch.device) -> bool:
    """Whether the kernels may use instructions that only NVIDIA's cards have."""
    return device.type == "cuda" and torch.version.hip is None


def block_columns_on(device: torch.device) -> int:
    """Columns of a block: half as many without the TMA, for cards with less shared memory."""
    return BLOCK_COLUMNS if has_tma(device) else BLOCK_COLUMNS // 2


def kernel_options(scale: float | Tensor, device: torch.device) -> dict[str, Any]:
    """How all kernels are compiled: alike, so that they make the same logits.

    Fused multiply-add rounds `z * scale - max` differently in two of them, unless the scale is a power of two.
    """
    exact = not isinstance(scale, Tensor) and abs(frexp(scale)[0]) == 0.5
    tma = has_tma(device)
    return {
        "tma": tma,
        "by_nvidia": by_nvidia(device),
        "block_rows": BLOCK_ROWS,
        "block_columns": block_columns_on(device),
        "block_width": BLOCK_WIDTH,
        "num_warps": 8 if tma else 4,
        "num_stages": 4 if tma else 3,
        "enable_fp_fusion": exact,
    }


def tma_can_read(matrix: Tensor) -> bool:
    """Whether the TMA can read this matrix as it lies."""
    aligned = matrix.data_ptr() % _TMA_BYTES == 0 and matrix.stride(0) * matrix.itemsize % _TMA_BYTES == 0
    return aligned and matrix.stride(1) == 1


def operand(matrix: Tensor, block_rows: int, block_columns: int, tma: bool) -> Any:
    """A matrix as a kernel takes it: a descriptor for the TMA, or as it is."""
    return TensorDescriptor.from_tensor(matrix, [block_rows, block_columns]) if tma else matrix


def blocks(rows: int, columns: int, device: torch.device) -> tuple[int, int]:
    """How many blocks cover a tile, down and along."""
    # triton.cdiv takes longer than all else here
    return -(-rows // BLOCK_ROWS), -(-columns // block_columns_on(device))


def programs(rows: int, columns: int, device: torch.device) -> int:
    """As many programs as run at the same time, or one per block where those are fewer."""
    return min(prod(blocks(rows, columns, device)), _at_once(device))


def splits_for(rows: int, columns: int, device: torch.device) -> tuple[int, int, int]:
    """`cut_columns` for the forward, by segments of one length: a row's sums have the same bits in any batch."""
    return cut_columns(*blocks(rows, columns, device), _at_once(device), _SEGMENT)


@lru_cache(256)
def cut_columns(
    row_blocks: int, column_blocks: int, available: int, segment: int | None = None
) -> tuple[int, int, int]:
    """How many blocks of rows are taken at a time, the number of splits, and the blocks of a segment.

    The segments of columns are dealt to the splits in turn. A program, of at most `available`, has one block of rows
    and one split.
    """
    units = -(-column_blocks // segment) if segment else column_blocks

    def splits(height: int) -> int:
        return min(units, available // height)

    def cost(height: int) -> float:
        """Turns of the slowest program; the fewer rows at a time, the more often the weight is read."""
        turns = -(-row_blocks // height) * -(-units // splits(height))
        return turns * (1 + 0.2 / height)

    height = min(range(1, min(row_blocks, _TALLEST, available) + 1), key=cost)
    if segment:
        return height, splits(height), segment
    segment = -(-column_blocks // splits(height))
    return height, -(-column_blocks // segment), segment


def _at_once(device: torch.device) -> int:
    return multiprocessors(device) * BLOCK_COLUMNS // block_columns_on(device)


@cache
def multiprocessors(device: torch.device) -> int:
    """Those of a card. The interpreter has none: six programs, so that splits and blocks of rows are several."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 6


ROW_GROUP = tl.constexpr(8)  # blocks that run at the same time share so many blocks of rows, which the cache then holds
_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def block_position(block, row_blocks, column_blocks):
    """The row and the column of the `block`-th block, counted down the rows of a group, then along the columns."""
    in_group = ROW_GROUP * column_blocks
    first = block // in_group * ROW_GROUP
    height = min(row_blocks - first, ROW_GROUP)
    return first + block % in_group % height, block % in_group // height


@triton.jit
def block_product(
    x, w, x_stride, w_stride, first_row, first_column, rows, columns, width,
    tma: tl.constexpr, even_width: tl.constexpr, block_rows: tl.constexpr, block_columns: tl.constexpr,
    block_width: tl.constexpr,
):  # fmt: skip
    """`x[rows] @ w[columns].T` in float32; beyond the ends of `x` and `w` the block holds nothing of use.

    `tma`: `x` and `w` are descriptors for the TMA; otherwise pointers.
    """
    z = tl.zeros((block_rows, block_columns), tl.float32)
    if tma:
        for step in range(tl.cdiv(width, block_width)):
            z = tl.dot(x.load([first_row, step * block_width]), w.load([first_column, step * block_width]).T, z)
    else:
        row = tl.minimum(first_row + tl.arange(0, block_rows), rows - 1)
        column = tl.minimum(first_column + tl.arange(0, block_columns), columns - 1)
        along = tl.arange(0, block_width)
        x_here = x + row.to(tl.int64)[:, None] * x_stride + along[None, :]
        w_here = w + column.to(tl.int64)[None, :] * w_stride + along[:, None]
        for step in range(tl.cdiv(width, block_width)):
            if even_width:
                a, b = tl.load(x_here), tl.load(w_here)
            else:
                inside = along < width - step * block_width
                a = tl.load(x_here, mask=inside[None, :], other=0.0)
                b = tl.load(w_here, mask=inside[:, None], other=0.0)
            z = tl.dot(a, b, z)
            x_here += block_width
            w_here += block_width
    return z


@triton.jit
def store_block(out, stride, values, first_row, first_column, rows, columns, tma: tl.constexpr):
    """Store a block of a matrix; what lies beyond its ends is dropped."""
    if tma:
        out.store([first_row, first_column], values)
    else:
        row = first_row + tl.arange(0, values.shape[0])
        column = first_column + tl.arange(0, values.shape[1])
        here = out + row.to(tl.int64)[:, None] * stride + column[None, :]
        tl.store(here, values, mask=(row < rows)[:, None] & (column < columns)[None, :])


@triton.jit
def exp(x, by_nvidia: tl.constexpr):
    """The exponential of each number."""
    if by_nvidia:
        x = tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x * _LOG2_E], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        x = tl.exp(x)
    return x


@triton.jit
def log2(x, by_nvidia: tl.constexpr):
    """The binary logarithm of each number."""
    if by_nvidia:
        x = tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        x = tl.log2(x)
    return x
