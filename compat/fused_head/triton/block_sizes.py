"""The block of logits that one program of the fused kernels makes at a time. Imports no triton."""

from torch import Tensor

BLOCK_ROWS = 128
BLOCK_COLUMNS = 256
BLOCK_WIDTH = 64  # of the hidden size, per step of the product


def least_tile_bytes(weight: Tensor) -> int:
    """A block of gradients in the weight's dtype, and the sums of its columns in float32."""
    return BLOCK_COLUMNS * (BLOCK_ROWS * weight.itemsize + 4 * weight.shape[1])
