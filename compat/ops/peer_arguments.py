"""Arguments that fused log-probs elsewhere take, in the terms of the operator here."""

from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.ops.seam import math_dtype
from mcore_unpatch.compat.ops.tile_plan import default_tile_bytes
from mcore_unpatch.compat.ops.triton.block_sizes import least_tile_bytes


def chunk_tile_bytes(chunk_size: int | None, batch: int, weight: Tensor) -> int | None:
    """At most what the logits of `chunk_size` positions of the whole batch take; None: the default.

    So a chunk size stays an upper bound on memory, though nothing here is cut along the sequence. A bound too small for
    the least that a backend can work with is raised to that.
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
    """The range a caller names must be that of the shard: the operator derives it from the shards themselves."""
    expected = (group.rank() * len(weight), (group.rank() + 1) * len(weight))
    if (start, end) != expected:
        raise ValueError(
            f"vocab_start_index, vocab_end_index: expected {expected} for the {len(weight)} rows that rank "
            f"{group.rank()} of the tensor-parallel group holds, got {(start, end)}"
        )
