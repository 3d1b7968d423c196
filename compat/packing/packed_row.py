"""A packed row, described by Megatron's `cu_seqlens` on the device: whole, or in shares of context-parallel ranks.

`padded_bounds` `[sequences + 1]` are the cumulative padded lengths over all ranks. Nothing here waits for the device.
"""

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.packing.gather import Gradient, gather_shares


def gather_packed_row(
    share: Tensor, padded_bounds: Tensor, cp_group: ProcessGroup | None, gradient: Gradient = "own"
) -> Tensor:
    """`[1, tokens / cp, ...]` on each rank to the whole row `[1, tokens, ...]`; `gradient` as in `gather_shares`."""
    if cp_group is None or cp_group.size() == 1:
        return share
    rows = gather_shares(share, cp_group, gradient).flatten(0, 2)
    return rows[_places(padded_bounds, len(rows), cp_group.size(), share.device)][None]


def split_packed_row(row: Tensor, padded_bounds: Tensor, cp_group: ProcessGroup | None) -> Tensor:
    """The share `[1, tokens / cp, ...]` of this rank of the whole row `[1, tokens, ...]`."""
    if cp_group is None or cp_group.size() == 1:
        return row
    tokens, ranks = row.shape[1], cp_group.size()
    places = _places(padded_bounds, tokens, ranks, row.device)
    token_at = torch.empty_like(places).scatter_(0, places, torch.arange(tokens, device=row.device))
    return row[:, token_at.view(ranks, tokens // ranks)[cp_group.rank()]]


def _places(bounds: Tensor, tokens: int, ranks: int, device: torch.device) -> Tensor:
    """`[tokens]`: where each token of the whole row stands when the shares are laid one after another."""
    bounds, token = bounds.to(device).long(), torch.arange(tokens, device=device)
    sequence = torch.searchsorted(bounds[1:], token, right=True).clamp_(max=bounds.numel() - 2)
    start = bounds[sequence]
    chunk = ((bounds[sequence + 1] - start) // (2 * ranks)).clamp_(min=1)
    piece, rest = (token - start) // chunk, (token - start) % chunk
    owner = torch.where(piece < ranks, piece, 2 * ranks - 1 - piece)
    return owner * (tokens // ranks) + start // ranks + rest + torch.where(piece < ranks, 0, chunk)
