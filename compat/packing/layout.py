"""The plan of a packed row: which token of which sequence lies where, on which context-parallel rank."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

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


@dataclass(frozen=True)
class PackedLayout:
    """Sequences of `lengths`, each padded to its entry in `padded`, one after another in one row.

    Made by `plan_packing`. Plain numbers on the host: nothing here needs a device sync.
    """

    lengths: tuple[int, ...]
    padded: tuple[int, ...]
    cp_size: int = 1
    cp_rank: int = 0
    _kept: dict[tuple[str, str], Tensor] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def tokens(self) -> int:
        """Real tokens, all ranks together."""
        return sum(self.lengths)

    @cached_property
    def local_tokens(self) -> int:
        """Tokens of the packed row on this context-parallel rank, padding included."""
        return sum(self.padded) // self.cp_size

    @cached_property
    def _local(self) -> tuple[Tensor, Tensor, Tensor]:
        return _places(self, self.cp_rank)

    def real_index(self, device: torch.device) -> Tensor:
        """`[local tokens]`: which real token stands at each place of this rank's row; `tokens` where padding does."""
        return self._on(device, "real", lambda: self._local[0])

    def sequence_index(self, device: torch.device) -> Tensor:
        """`[local tokens]`: which sequence each place of this rank's row belongs to; `len(lengths)` for padding."""
        return self._on(
            device, "sequence", lambda: self._local[1].where(self._local[0] < self.tokens, len(self.lengths))
        )

    def gathered_index(self, device: torch.device) -> Tensor:
        """`[real tokens]`: where each stands when the rows of all ranks are laid one after another."""
        return self._on(device, "gathered", self._invert)

    def real_lengths(self, device: torch.device) -> Tensor:
        """`[sequences]`: lengths without padding."""
        return self._on(device, "lengths", lambda: torch.tensor(self.lengths))

    def bounds(self, device: torch.device) -> Tensor:
        """`[sequences + 1]` int32: padded cumulative lengths over all ranks, Megatron's `cu_seqlens`."""
        return self._on(device, "bounds", lambda: torch.tensor((0, *self.padded)).cumsum(0).int())

    def packed_seq_params(self, device: torch.device) -> Any:
        """Megatron's own description of this layout, for `model(..., packed_seq_params=...)`.

        Every field has the padded bounds: Megatron rolls MTP labels and splits rotary embeddings by
        `cu_seqlens_q`, and causal attention keeps the trailing padding of a sequence from its real tokens.
        """
        from megatron.core.packed_seq_params import PackedSeqParams

        bounds, longest = self.bounds(device), max(self.padded, default=0)
        return PackedSeqParams(
            qkv_format="thd",
            cu_seqlens_q=bounds,
            cu_seqlens_kv=bounds,
            cu_seqlens_q_padded=bounds,
            cu_seqlens_kv_padded=bounds,
            max_seqlen_q=longest,
            max_seqlen_kv=longest,
        )

    def position_ids(self, device: torch.device) -> Tensor:
        """`[1, local tokens]`: the position of each place in its own sequence."""
        return self._on(device, "position", lambda: self._local[2])[None]

    def _invert(self) -> Tensor:
        shares = [self._local if rank == self.cp_rank else _places(self, rank) for rank in range(self.cp_size)]
        rows = torch.cat([real for real, _, _ in shares])
        inverse = torch.empty(self.tokens + 1, dtype=torch.long)
        inverse[rows] = torch.arange(rows.numel())
        return inverse[: self.tokens]

    def _on(self, device: torch.device, name: str, make: Any) -> Tensor:
        key = (name, str(device))
        if key not in self._kept:
            self._kept[key] = make().to(device, non_blocking=True)
        return self._kept[key]


def plan_packing(
    lengths: Sequence[int], *, tp_size: int = 1, cp_size: int = 1, cp_rank: int = 0, token_multiple: int = 1
) -> PackedLayout:
    """Lay sequences of `lengths` into one row.

    Each is padded so that it splits into `2 * cp` zigzag chunks and every rank's row divides by `tp` (sequence
    parallelism). `token_multiple` is a further multiple for the row of one context-parallel rank, such as 16 for fp8,
    32 for mxfp8 or 128 for blockwise fp8 products; the last sequence gets that padding.
    """
    if min(tp_size, cp_size, token_multiple) < 1 or not 0 <= cp_rank < cp_size:
        raise ValueError(
            "expected tp_size, cp_size and token_multiple of at least 1 and 0 <= cp_rank < cp_size, got "
            f"{tp_size=}, {cp_size=}, {token_multiple=}, {cp_rank=}"
        )
    if any(length < 0 for length in lengths):
        raise ValueError(f"lengths: expected no negative numbers, got {list(lengths)}")
    unit = tp_size if cp_size == 1 else cp_size * math.lcm(tp_size, 2)
    padded = [-(-length // unit) * unit for length in lengths]
    if padded:
        row = cp_size * math.lcm(token_multiple, tp_size, 1 if cp_size == 1 else 2)
        padded[-1] += -sum(padded) % row
    return PackedLayout(tuple(lengths), tuple(padded), cp_size, cp_rank)


def _places(layout: PackedLayout, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """For every place in the row of `rank`: its real token (`tokens` for padding), its sequence, its position there."""
    parts = [zigzag_index(length, layout.cp_size, rank) for length in layout.padded]
    offset = torch.cat(parts) if parts else torch.empty(0, dtype=torch.long)
    share = torch.tensor(layout.padded, dtype=torch.long) // layout.cp_size
    sequence = torch.repeat_interleave(torch.arange(share.numel()), share)
    lengths = torch.tensor(layout.lengths, dtype=torch.long)
    real = (lengths.cumsum(0) - lengths)[sequence] + offset
    return real.where(offset < lengths[sequence], layout.tokens), sequence, offset
