"""Attention and norm for a small real model on any device: they go into Megatron's layer specs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mcore_unpatch.compat.packing.gather import gather_shares, zigzag_index


def norm_of(config: Any, hidden_size: int, eps: float = 1e-5, **_: Any) -> torch.nn.Module:
    """The norm that the configuration names, from torch itself."""
    kind = torch.nn.RMSNorm if config.normalization == "RMSNorm" else torch.nn.LayerNorm
    return kind(hidden_size, eps=eps, dtype=config.params_dtype)


class CausalAttention(torch.nn.Module):
    """Causal attention over `[s, b, heads, d]`, exact under zigzag context parallelism."""

    def __init__(self, config: Any, pg_collection: Any = None, **_: Any) -> None:
        super().__init__()
        self.config, self.group = config, pg_collection.cp

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        """Attend; what packing and masks say does not matter for one causal sequence."""
        ranks, length = self.group.size(), query.shape[0]
        places = [zigzag_index(length * ranks, ranks, rank, query.device) for rank in range(ranks)]
        everyone, mine = torch.cat(places), places[self.group.rank()]
        if ranks > 1:
            key, value = (gather_shares(x, self.group, "summed").flatten(0, 1) for x in (key, value))
        repeat = query.shape[2] // key.shape[2]
        q, k, v = (
            x.permute(1, 2, 0, 3) for x in (query, key.repeat_interleave(repeat, 2), value.repeat_interleave(repeat, 2))
        )
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mine[:, None] >= everyone)
        return out.permute(2, 0, 1, 3).flatten(2)
