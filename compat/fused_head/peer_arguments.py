"""Translates arguments of other fused log-prob functions into those of `linear_logprob`."""

from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.fused_head.seam import math_dtype
from mcore_unpatch.compat.fused_head.tile_plan import default_tile_bytes
from mcore_unpatch.compat.fused_head.triton.block_sizes import least_tile_bytes


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


def check_vocab_range(start: int, end: int, weight: Tensor, group: ProcessGroup) -> None:
    """Raise unless the caller's range is that of the shard: the operator derives it from the shards themselves."""
    expected = (group.rank() * len(weight), (group.rank() + 1) * len(weight))
    if (start, end) != expected:
        raise ValueError(
            f"vocab_start_index, vocab_end_index: expected {expected} for the {len(weight)} rows on rank "
            f"{group.rank()} of the tensor-parallel group, got {(start, end)}"
        )
