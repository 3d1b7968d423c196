"""Packed sequences and context parallelism: how tokens are split over ranks, labelled and gathered.

A gather's backward keeps this rank's `"own"` part, where every rank computes the SAME loss from what is gathered, or
the `"summed"` gradients of all ranks, where each computes a different part of the loss. The bounds `[sequences + 1]`
of a packed row are Megatron's `cu_seqlens` with padding: nothing here waits for them.
"""

from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from .fused_head.autograd import with_gradient
from .fused_head.problem import gather
from .fused_head.settings import check_choice


def size_and_rank(group: ProcessGroup | None) -> tuple[int, int]:
    """Those of this rank; None means a group of one rank."""
    return (1, 0) if group is None else (group.size(), group.rank())


def zigzag_split(whole: Tensor, cp_size: int, cp_rank: int, dim: int = 1) -> Tensor:
    """The share of `cp_rank` of a whole sequence that runs along `dim`."""
    if cp_size == 1:
        return whole
    if whole.shape[dim] % (2 * cp_size):
        raise ValueError(
            f"a sequence of {whole.shape[dim]} tokens cannot be split over {cp_size} context-parallel ranks; "
            f"pad it to a multiple of 2 * cp = {2 * cp_size}."
        )
    chunks = whole.chunk(2 * cp_size, dim)
    return torch.cat([chunks[cp_rank], chunks[2 * cp_size - 1 - cp_rank]], dim)


def zigzag_places(bounds: Tensor, tokens: int, cp_size: int) -> Tensor:
    """`[tokens]`: where each token of a packed row stands when the shares of all ranks are laid one after another."""
    token = torch.arange(tokens, device=bounds.device)
    if cp_size == 1:
        return token
    bounds = bounds.long()
    sequence = torch.searchsorted(bounds[1:], token, right=True).clamp_(max=bounds.numel() - 2)
    start = bounds[sequence]
    chunk = ((bounds[sequence + 1] - start) // (2 * cp_size)).clamp_(min=1)
    piece, rest = (token - start) // chunk, (token - start) % chunk
    owner = torch.where(piece < cp_size, piece, 2 * cp_size - 1 - piece)
    return owner * (tokens // cp_size) + start // cp_size + rest + torch.where(piece < cp_size, 0, chunk)


def held_by(places: Tensor, cp_size: int, cp_rank: int) -> Tensor:
    """`[tokens / cp]`: the tokens in the share of `cp_rank`, in the order in which they stand there."""
    token_at = torch.empty_like(places).scatter_(0, places, torch.arange(len(places), device=places.device))
    return token_at.view(cp_size, len(places) // cp_size)[cp_rank]


Gradient = Literal["own", "summed"]


def gather_shares(share: Tensor, cp_group: ProcessGroup | None, gradient: Gradient = "own") -> Tensor:
    """`[...]` on each rank to `[cp, ...]` on every rank, in rank order; None means a group of one rank."""
    check_choice("gradient", gradient, *get_args(Gradient))
    if cp_group is None:
        return share[None]

    gathered = with_gradient(share, lambda mine: gather(mine, cp_group), lambda grad: grad[cp_group.rank()])
    return sum_gradient(gathered, cp_group) if gradient == "summed" else gathered


def gather_sequence(
    share: Tensor, cp_group: ProcessGroup | None, gradient: Gradient = "own", bounds: Tensor | None = None
) -> Tensor:
    """The whole rows `[b, tokens, ...]` from each rank's `[b, tokens / cp, ...]`; `bounds`: of a packed one."""
    check_choice("gradient", gradient, *get_args(Gradient))
    if cp_group is None or cp_group.size() == 1:
        return share
    if share.shape[1] % 2:
        raise ValueError(f"expected a zigzag share, two chunks of equal length, got {list(share.shape)}")
    rows = torch.cat(gather_shares(share, cp_group, gradient).unbind(), 1)
    bounds = torch.tensor([0, rows.shape[1]]) if bounds is None else bounds
    return rows.index_select(1, zigzag_places(bounds.to(share.device), rows.shape[1], cp_group.size()))


def row_bounds(packed_seq_params: Any) -> Tensor:
    """Those of Megatron's packed row."""
    padded: Tensor | None = packed_seq_params.cu_seqlens_q_padded
    return packed_seq_params.cu_seqlens_q if padded is None else padded


def split_packed_row(row: Tensor, bounds: Tensor, cp_group: ProcessGroup | None) -> Tensor:
    """The share `[1, tokens / cp, ...]` of this rank of the whole row `[1, tokens, ...]`."""
    if cp_group is None or cp_group.size() == 1:
        return row
    places = zigzag_places(bounds.to(row.device), row.shape[1], cp_group.size())
    return row[:, held_by(places, cp_group.size(), cp_group.rank())]


def sum_gradient(value: Tensor, group: ProcessGroup | None) -> Tensor:
    """`value` itself, whose gradient is summed over the ranks; Megatron 0.18's own loses that of a strided one."""
    if group is None or group.size() == 1:
        return value

    def summed(grad: Tensor) -> Tensor:
        total = grad.clone(memory_format=torch.contiguous_format)
        torch.distributed.all_reduce(total, group=group)
        return total

    return with_gradient(value, lambda same: same.view_as(same), summed)


def next_token_labels(
    tokens: Tensor,
    *,
    packed_seq_params: Any | None = None,
    lengths: Tensor | None = None,
    cp_group: ProcessGroup | None = None,
    fill: int = -100,
) -> Tensor:
    """The token that follows each of `tokens` `[b, s]` in its own sequence; `fill` where none follows.

    `lengths` `[sequences]` are those without padding, one per packed sequence (else from `cu_seqlens_q`) or one per
    row. With `cp_group` each rank passes its zigzag share and gets the labels of that share, without a host sync.
    """
    if packed_seq_params is None:
        sequences, what = len(tokens), "row"
        bounds = torch.arange(2, device=tokens.device) * tokens.shape[1] * size_and_rank(cp_group)[0]
    else:
        if tokens.shape[0] != 1:
            raise ValueError(f"tokens: expected one packed row, [1, tokens], got {list(tokens.shape)}")
        bounds = row_bounds(packed_seq_params).to(tokens.device).long()
        sequences, what = bounds.numel() - 1, "packed sequence"
        lengths = packed_seq_params.cu_seqlens_q.diff() if lengths is None else lengths
    whole = gather_sequence(tokens, cp_group, bounds=bounds)
    place = torch.arange(whole.shape[1], device=tokens.device)
    sequence = torch.searchsorted(bounds[1:], place, right=True).clamp_(max=bounds.numel() - 2)
    end = bounds.diff()[sequence]  # of the real tokens: of one row per token, of several rows per row
    if lengths is not None:
        if lengths.shape != (sequences,):
            raise ValueError(f"lengths: expected one per {what}, [{sequences}], got {list(lengths.shape)}")
        lengths = lengths.to(tokens.device)
        end = lengths[:, None] if packed_seq_params is None else lengths[sequence]
    return split_packed_row(whole.roll(-1, 1).where(place - bounds[sequence] + 1 < end, fill), bounds, cp_group)
