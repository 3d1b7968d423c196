"""Entropy from hidden states, with its gradient: per token, or averaged over the actions of a packed row."""

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.fused_head.linear_logprob import vocab_pass
from mcore_unpatch.compat.fused_head.memory import chunk_tile_bytes
from mcore_unpatch.compat.packing.gather import split_packed_row
from mcore_unpatch.compat.skyrl.logprobs import Backend
from mcore_unpatch.compat.skyrl.unpacking import places_of


def fused_vocab_parallel_entropy_from_hidden(
    hidden: Tensor,
    lm_head_weight: Tensor,
    tp_group: ProcessGroup,
    chunk_size: int | None = None,
    temperature: float = 1.0,
    *,
    mask: Tensor | None = None,
    mask_count: int | None = None,
    fused_backend: Backend = "torch",
) -> Tensor:
    """`[b, s]` fp32 from hidden `[b, s, h]`; `mask` and `mask_count` as in `linear_logprob`."""
    out = vocab_pass(
        hidden,
        lm_head_weight,
        temperature=temperature,
        mask=mask,
        mask_count=mask_count,
        entropy=True,
        tp_group=tp_group,
        reduce_hidden_grad=False,
        backend=fused_backend,
        tile_bytes=chunk_tile_bytes(chunk_size, len(hidden), lm_head_weight),
    )
    assert out.entropy is not None
    return out.entropy


def from_parallel_hidden_to_entropy_packed_sequences(
    hidden: Tensor,
    lm_head_weight: Tensor,
    cu_seqlens_padded: Tensor,
    unpacked_seqlen: int,
    num_actions: int,
    attention_mask: Tensor,
    loss_mask: Tensor | None,
    cp_group: ProcessGroup | None,
    tp_group: ProcessGroup,
    sub_seq_lengths: list[list[int]] | None = None,
    chunk_size: int | None = None,
    temperature: float = 1.0,
    *,
    fused_backend: Backend = "torch",
) -> tuple[Tensor, Tensor]:
    """The mean entropy over the last `num_actions` positions of each row, weighted by `loss_mask` `[b, num_actions]`.

    Returns two numbers: the mean over all context-parallel ranks, without gradient, for metrics; and this rank's part
    of it, with gradient, for a loss that is summed over the ranks. Positions without weight are not computed.
    """
    ranks = 1 if cp_group is None else cp_group.size()
    bounds, tokens = cu_seqlens_padded.to(hidden.device), hidden.shape[1] * ranks
    places = places_of(bounds, unpacked_seqlen, tokens, attention_mask, sub_seq_lengths)
    weights = torch.zeros(places.token.shape, device=hidden.device)
    weights[:, -num_actions:] = 1.0 if loss_mask is None else loss_mask.to(weights)
    share = split_packed_row(places.put(weights, tokens), bounds, cp_group)
    entropy = fused_vocab_parallel_entropy_from_hidden(
        hidden,
        lm_head_weight,
        tp_group,
        chunk_size,
        temperature,
        mask=share,
        mask_count=min(num_actions * len(weights), hidden.shape[1]),
        fused_backend=fused_backend,
    )
    mine = (entropy * share).sum()
    totals = torch.stack([mine.detach(), share.sum()])
    if ranks > 1:
        torch.distributed.all_reduce(totals, group=cp_group)
    count = totals[1].clamp(min=1.0)
    return totals[0] / count, mine / count
