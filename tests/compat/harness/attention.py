"""Attention and norm that let Megatron's local layer spec run on a CPU, with context and sequence parallelism."""

from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup


class Norm(torch.nn.LayerNorm):
    """A LayerNorm that allows sequence parallelism: its parameters carry the mark Megatron reduces them by."""

    def __init__(self, config: Any, hidden_size: int, eps: float = 1e-5, **_: Any) -> None:
        super().__init__(hidden_size, eps=eps, dtype=config.params_dtype)
        for parameter in self.parameters():
            parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]


class _AllGather(torch.autograd.Function):
    """Rows of all ranks, one after another; the backward sums what each rank says about this rank's rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        parts = [torch.empty_like(rows) for _ in range(group.size())]
        torch.distributed.all_gather(parts, rows.contiguous(), group=group)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0].contiguous()
        torch.distributed.all_reduce(total, group=ctx.group)
        return total.chunk(ctx.group.size())[ctx.group.rank()], None


def zigzag_places(length: int, ranks: int, rank: int) -> list[int]:
    """Where the tokens held by `rank` stand in a sequence of `length`, written the slow and plain way."""
    if ranks == 1:
        return list(range(length))
    chunk = length // (2 * ranks)
    front, back = rank, 2 * ranks - 1 - rank
    return [*range(front * chunk, (front + 1) * chunk), *range(back * chunk, (back + 1) * chunk)]


def _sequences_and_places(lengths: list[int], ranks: int, rank: int) -> Tensor:
    """[2, local tokens]: which sequence each local token belongs to, and where in it the token stands."""
    pairs = [(number, p) for number, length in enumerate(lengths) for p in zigzag_places(length, ranks, rank)]
    return torch.tensor(pairs).T


class CpuAttention(torch.nn.Module):
    """Causal attention for `[s, b, heads, d]` and packed `[t, heads, d]`, exact under zigzag context parallelism."""

    def __init__(self, config: Any, pg_collection: Any = None, **_: Any) -> None:
        super().__init__()
        self.config = config
        self.cp_group = pg_collection.cp

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, packed_seq_params: Any = None, **_: Any
    ) -> Tensor:
        packed = packed_seq_params is not None
        if packed:
            query, key, value = (x.unsqueeze(1) for x in (query, key, value))
        group, ranks = self.cp_group, self.cp_group.size()
        if packed:
            bounds = packed_seq_params.cu_seqlens_q_padded
            bounds = packed_seq_params.cu_seqlens_q if bounds is None else bounds
            lengths = bounds.diff().tolist()
        else:
            lengths = [query.shape[0] * ranks]
        mine = _sequences_and_places(lengths, ranks, group.rank())
        everyone = torch.cat([_sequences_and_places(lengths, ranks, rank) for rank in range(ranks)], dim=1)
        visible = ((mine[0, :, None] == everyone[0]) & (mine[1, :, None] >= everyone[1])).to(query.device)
        if ranks > 1:
            key, value = (_AllGather.apply(x, group) for x in (key, value))  # type: ignore[no-untyped-call]
        repeat = query.shape[2] // key.shape[2]
        q, k, v = (
            x.permute(1, 2, 0, 3) for x in (query, key.repeat_interleave(repeat, 2), value.repeat_interleave(repeat, 2))
        )
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=visible, scale=self.config.softmax_scale
        )
        out = out.permute(2, 0, 1, 3).flatten(2)  # [s, b, h]
        return out.squeeze(1) if packed else out
