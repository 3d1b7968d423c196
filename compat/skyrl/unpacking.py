"""The place of each position of SkyRL's `[b, s - 1]` results in the packed row."""

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor


@dataclass(frozen=True)
class Places:
    """For every position of `[b, s - 1]`: its token in the packed row, and whether another token follows it."""

    token: Tensor  # [b, s - 1]
    valid: Tensor  # [b, s - 1] bool

    def take(self, row: Tensor) -> Tensor:
        """`[1, tokens]` to `[b, s - 1]`, 0 where there is nothing."""
        return row[0, self.token].where(self.valid, 0)

    def put(self, values: Tensor, tokens: int) -> Tensor:
        """`[b, s - 1]` to `[1, tokens]`, 0 where nothing belongs."""
        row = values.new_zeros(tokens + 1)
        token = self.token.where(self.valid, tokens)
        return row.scatter(0, token.flatten(), values.flatten())[None, :-1]


def places_of(
    padded_bounds: Tensor,
    unpacked_length: int,
    tokens: int,
    attention_mask: Tensor | None,
    sub_seq_lengths: list[list[int]] | None,
) -> Places:
    """By `sub_seq_lengths` (several sequences in each row), by `attention_mask` `[b, s]`, or left-aligned.

    Nothing here waits for the device.
    """
    bounds = padded_bounds.long()
    column = torch.arange(unpacked_length - 1, device=bounds.device)
    if sub_seq_lengths is not None:
        return _of_sub_sequences(bounds, column, tokens, sub_seq_lengths)
    if attention_mask is not None:
        real = attention_mask.to(bounds.device, torch.bool)
        ordinal = real.long().cumsum(1)
        valid = real[:, :-1] & (ordinal[:, :-1] < ordinal[:, -1:])
        token = bounds[:-1, None] + ordinal[:, :-1] - 1
    else:
        token = bounds[:-1, None] + column
        valid = token < bounds[1:, None] - 1
    return Places(token.clamp(0, tokens - 1), valid)


def _of_sub_sequences(bounds: Tensor, column: Tensor, tokens: int, sub_seq_lengths: list[list[int]]) -> Places:
    found, known = sum(map(len, sub_seq_lengths)), bounds.numel() - 1
    if found != known:
        raise ValueError(f"sub_seq_lengths: expected {known} sub-sequences as in cu_seqlens_padded, got {found}")
    first = torch.tensor([0, *accumulate(map(len, sub_seq_lengths))], device=bounds.device)  # [b + 1]
    lengths = torch.tensor([n for row in sub_seq_lengths for n in row], device=bounds.device)
    token = bounds[first[:-1], None] + column
    sequence = torch.searchsorted(bounds[1:], token.contiguous(), right=True)
    inside = sequence < first[1:, None]
    sequence = sequence.clamp(max=known - 1)
    valid = inside & (token - bounds[sequence] < lengths[sequence] - 1)
    return Places(token.clamp(0, tokens - 1), valid)
