"""The zigzag split of Megatron's context parallelism.

A sequence is cut into `2 * cp` equal chunks, and rank `r` holds chunks `r` and `2 * cp - 1 - r`, so that every rank has
the same amount of causal attention to compute.
"""

import torch
from torch import Tensor


def zigzag_index(length: int, cp_size: int, cp_rank: int, device: torch.device | None = None) -> Tensor:
    """`[length / cp]`: where each token held by `cp_rank` stands in the whole sequence."""
    if cp_size == 1:
        return torch.arange(length, device=device)
    chunks = _chunked(torch.arange(length, device=device), 0, cp_size)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]])


def zigzag_split(whole: Tensor, cp_size: int, cp_rank: int, dim: int = 1) -> Tensor:
    """The share of `cp_rank` of a whole sequence that runs along `dim`."""
    if cp_size == 1:
        return whole
    chunks = _chunked(whole, dim, cp_size)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]], dim)


def zigzag_merge(shares: list[Tensor] | tuple[Tensor, ...], dim: int = 1) -> Tensor:
    """The whole sequence from the shares of all ranks in rank order: the inverse of `zigzag_split`."""
    if len(shares) == 1:
        return shares[0]
    halves = [share.chunk(2, dim) for share in shares]
    return torch.cat([front for front, _ in halves] + [back for _, back in reversed(halves)], dim)


def _chunked(whole: Tensor, dim: int, cp_size: int) -> tuple[Tensor, ...]:
    if whole.shape[dim] % (2 * cp_size):
        raise ValueError(
            f"a sequence of {whole.shape[dim]} tokens cannot be split over {cp_size} context-parallel ranks; "
            f"pad it to a multiple of 2 * cp = {2 * cp_size}."
        )
    return whole.chunk(2 * cp_size, dim)
