"""How the fused kernels are launched: one program per multiprocessor, operands read by the copy engine."""

from functools import cache
from math import frexp, prod

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from mcore_unpatch.compat.ops.triton.block_sizes import BLOCK_COLUMNS, BLOCK_ROWS, BLOCK_WIDTH

_TALLEST = 16  # blocks of rows at a time in the forward: they stay in the cache while the columns pass
_ENGINE_BYTES = 16  # what the copy engine asks of every address and row


def kernel_options(scale: float | Tensor) -> dict[str, int]:
    """How both kernels are compiled: by the same options, for both must make the same logits.

    With fused multiply-add the compiler makes one instruction of `z * scale - peak` in one kernel and two in the other,
    which round differently, unless the scale is a power of two and rounds nothing. Without, the kernels are a little
    slower.
    """
    exact = not isinstance(scale, Tensor) and abs(frexp(scale)[0]) == 0.5
    return {
        "block_rows": BLOCK_ROWS,
        "block_columns": BLOCK_COLUMNS,
        "block_width": BLOCK_WIDTH,
        "num_warps": 8,
        "num_stages": 4,
        "enable_fp_fusion": exact,
    }


def can_be_described(matrix: Tensor) -> bool:
    """Whether the copy engine can read this matrix as it lies."""
    return (
        matrix.stride(1) == 1
        and matrix.data_ptr() % _ENGINE_BYTES == 0
        and matrix.stride(0) * matrix.itemsize % _ENGINE_BYTES == 0
    )


def describe_rows(x: Tensor) -> TensorDescriptor:
    """Rows of hidden states, read block by block."""
    return TensorDescriptor.from_tensor(x, [BLOCK_ROWS, BLOCK_WIDTH])


def describe_columns(w: Tensor) -> TensorDescriptor:
    """Rows of the weight, which are columns of the logits."""
    return TensorDescriptor.from_tensor(w, [BLOCK_COLUMNS, BLOCK_WIDTH])


def blocks(rows: int, columns: int) -> tuple[int, int]:
    """How many blocks cover a tile, down and along."""
    return -(-rows // BLOCK_ROWS), -(-columns // BLOCK_COLUMNS)  # triton.cdiv takes longer than all else here


def programs(rows: int, columns: int, device: torch.device) -> int:
    """One program per multiprocessor, or per block where those are fewer."""
    return min(prod(blocks(rows, columns)), _multiprocessors(device))


def lanes_for(rows: int, columns: int, device: torch.device) -> tuple[int, int]:
    """How many blocks of rows the forward takes at a time, and into how many lanes it deals the columns."""
    row_blocks, column_blocks = blocks(rows, columns)
    available = _multiprocessors(device)

    def lanes(height: int) -> int:
        return min(column_blocks, available // height)

    def cost(height: int) -> float:
        """Turns of the slowest program; the fewer rows at a time, the more often the weight is read."""
        turns = -(-row_blocks // height) * -(-column_blocks // lanes(height))
        return turns * (1 + 0.2 / height)

    height = min(range(1, min(row_blocks, _TALLEST, available) + 1), key=cost)
    return height, lanes(height)


@cache
def _multiprocessors(device: torch.device) -> int:
    # The interpreter has none: six programs, so that lanes and blocks of rows are several.
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 6
