"""Attention and norm for a small real model on any device: they go into Megatron's layer specs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def norm_of(config: Any, hidden_size: int, eps: float = 1e-5, **_: Any) -> torch.nn.Module:
    """The norm that the configuration names, from torch itself."""
    kind = torch.nn.RMSNorm if config.normalization == "RMSNorm" else torch.nn.LayerNorm
    return kind(hidden_size, eps=eps, dtype=config.params_dtype)


class AllGather(torch.autograd.Function):
    """The tokens of all context ranks, one rank after another; the backward sums what each says of this rank's."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: Any) -> Tensor:
        """Gather."""
        ctx.group = group
        parts = [torch.empty_like(rows) for _ in range(group.size())]
        torch.distributed.all_gather(parts, rows.contiguous(), group=group)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Sum, and take this rank's part."""
        total = gradients[0].contiguous()
        torch.distributed.all_reduce(total, group=ctx.group)
        return total.chunk(ctx.group.size())[ctx.group.rank()], None


class CausalAttention(torch.nn.Module):
    """Causal attention over `[s, b, heads, d]`, exact under zigzag context parallelism."""

    def __init__(self, config: Any, pg_collection: Any = None, **_: Any) -> None:
        super().__init__()
        self.config, self.group = config, pg_collection.cp

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        """Attend; what packing and masks say does not matter for one causal sequence."""
        ranks, length = self.group.size(), query.shape[0]
        everyone = torch.cat([_positions(length, ranks, rank) for rank in range(ranks)]).to(query.device)
        mine = _positions(length, ranks, self.group.rank()).to(query.device)
        if ranks > 1:
            key, value = (AllGather.apply(x, self.group) for x in (key, value))  # type: ignore[no-untyped-call]
        repeat = query.shape[2] // key.shape[2]
        q, k, v = (
            x.permute(1, 2, 0, 3) for x in (query, key.repeat_interleave(repeat, 2), value.repeat_interleave(repeat, 2))
        )
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mine[:, None] >= everyone)
        return out.permute(2, 0, 1, 3).flatten(2)


def _positions(length: int, ranks: int, rank: int) -> Tensor:
    """Where the `length` tokens of a rank stand: two slices, one from the front and one from the back."""
    if ranks == 1:
        return torch.arange(length)
    half = length // 2
    back = (2 * ranks - 1 - rank) * half
    return torch.cat([torch.arange(rank * half, rank * half + half), torch.arange(back, back + half)])
