"""How the fused kernels are launched: one program per multiprocessor, operands read by the copy engine."""

from functools import cache
from math import prod

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from mcore_unpatch.compat.ops.triton.logits_tile import BLOCK_COLUMNS, BLOCK_ROWS, BLOCK_WIDTH

_ALIGNED = 16  # bytes: what the copy engine asks of every address and row


def can_be_described(matrix: Tensor) -> bool:
    """Whether the copy engine can read this matrix as it lies."""
    return (
        matrix.stride(1) == 1
        and matrix.data_ptr() % _ALIGNED == 0
        and matrix.stride(0) * matrix.itemsize % _ALIGNED == 0
    )


def describe_rows(x: Tensor) -> TensorDescriptor:
    """Rows of hidden states, read block by block."""
    return TensorDescriptor.from_tensor(x, [BLOCK_ROWS, BLOCK_WIDTH])


def describe_columns(w: Tensor) -> TensorDescriptor:
    """Rows of the weight, which are columns of the logits."""
    return TensorDescriptor.from_tensor(w, [BLOCK_COLUMNS, BLOCK_WIDTH])


def blocks(rows: int, columns: int) -> tuple[int, int]:
    """How many blocks cover a tile, down and along."""
    return triton.cdiv(rows, BLOCK_ROWS), triton.cdiv(columns, BLOCK_COLUMNS)


def programs(rows: int, columns: int, device: torch.device) -> int:
    """One program per multiprocessor, or per block where those are fewer."""
    return min(prod(blocks(rows, columns)), _multiprocessors(device))


@cache
def _multiprocessors(device: torch.device) -> int:
    # The interpreter has none: two programs, so that each walks over several blocks.
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2
