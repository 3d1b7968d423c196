"""A packed row, known by Megatron's `cu_seqlens` on the device, brought together from context-parallel ranks."""

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.packing.gather import Gradient, gather_shares


def gather_packed_row(
    share: Tensor, padded_bounds: Tensor, cp_group: ProcessGroup | None, gradient: Gradient = "own"
) -> Tensor:
    """`[1, tokens / cp, ...]` on each rank to the whole row `[1, tokens, ...]`, every sequence in its order.

    `padded_bounds` `[sequences + 1]` are the cumulative padded lengths over all ranks; nothing here waits for the
    device. `gradient` as in `gather_shares`.
    """
    if cp_group is None or cp_group.size() == 1:
        return share
    rows = gather_shares(share, cp_group, gradient).flatten(0, 2)
    return rows[_places(padded_bounds.to(share.device).long(), len(rows), cp_group.size())][None]


def _places(bounds: Tensor, tokens: int, ranks: int) -> Tensor:
    """`[tokens]`: where each token of the whole row stands when the shares are laid one after another."""
    token = torch.arange(tokens, device=bounds.device)
    sequence = torch.searchsorted(bounds[1:], token, right=True).clamp_(max=bounds.numel() - 2)
    start = bounds[sequence]
    chunk = ((bounds[sequence + 1] - start) // (2 * ranks)).clamp_(min=1)
    piece, rest = (token - start) // chunk, (token - start) % chunk
    owner = torch.where(piece < ranks, piece, 2 * ranks - 1 - piece)
    return owner * (tokens // ranks) + start // ranks + rest + torch.where(piece < ranks, 0, chunk)
