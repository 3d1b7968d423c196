"""Batches packed into a row, the slow and plain way: as a trainer does it before it calls the model."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from megatron.core.packed_seq_params import PackedSeqParams
from torch import Tensor

from harness.attention import zigzag_places
from mcore_unpatch.compat.packing import Gradient, gather_shares


class Row:
    """Sequences of `lengths` in one row, each padded so that it splits; this rank's share of it."""

    def __init__(self, lengths: Sequence[int], tp_size: int = 1, cp_size: int = 1, cp_rank: int = 0) -> None:
        unit = tp_size if cp_size == 1 else cp_size * math.lcm(tp_size, 2)
        self.lengths, self.cp_size = list(lengths), cp_size
        self.padded = [-(-length // unit) * unit for length in lengths]
        self.bounds = torch.tensor([0, *self.padded]).cumsum(0).int()
        # Of each place of every rank's row, one after another: its sequence, its position there.
        self.everyone = [self._places(rank) for rank in range(cp_size)]
        self.mine = self.everyone[cp_rank]
        self.position_ids = torch.tensor([[at for _, at in self.mine]])

    def _places(self, rank: int) -> list[tuple[int, int]]:
        return [
            (number, at)
            for number, length in enumerate(self.padded)
            for at in zigzag_places(length, self.cp_size, rank)
        ]

    def packed_seq_params(self, device: Any = "cpu") -> Any:
        """Megatron's description of it."""
        names = ("cu_seqlens_q", "cu_seqlens_kv", "cu_seqlens_q_padded", "cu_seqlens_kv_padded")
        longest = {"max_seqlen_q": max(self.padded), "max_seqlen_kv": max(self.padded)}
        return PackedSeqParams(qkv_format="thd", **dict.fromkeys(names, self.bounds.to(device)), **longest)


class Packer(Row):
    """The row of a padded batch, whose `mask` `[b, s]` is true where a token is real."""

    def __init__(self, mask: Tensor, **ranks: int) -> None:
        self.tokens = [row.nonzero().flatten().tolist() for row in mask != 0]  # of each sequence its columns
        self.shape = mask.shape
        super().__init__([len(row) for row in self.tokens], **ranks)

    def _at(self, sequence: int, position: int) -> tuple[int, int] | None:
        columns = self.tokens[sequence]
        return (sequence, columns[position]) if position < len(columns) else None

    def pack(self, values: Tensor, fill: float = 0) -> Tensor:
        """`[b, s]` to this rank's row `[1, local tokens]`."""
        empty = values.new_full((), fill)
        cells = [self._at(*place) for place in self.mine]
        return torch.stack([empty if cell is None else values[cell] for cell in cells])[None]

    def unpack(self, row: Tensor, cp_group: Any = None, gradient: Gradient = "own") -> Tensor:
        """The rows of all ranks back to `[b, s]`, 0 where there is no token."""
        whole = row if self.cp_size == 1 else gather_shares(row, cp_group, gradient).flatten(0, 1)
        cells = [self._at(*place) for rank in self.everyone for place in rank]
        real = torch.tensor([cell is not None for cell in cells])
        flat = torch.tensor([cell[0] * self.shape[1] + cell[1] for cell in cells if cell is not None])
        values = whole.flatten(0, 1)[real]
        return values.new_zeros(self.shape.numel(), *values.shape[1:]).index_put((flat,), values).view(self.shape)
