"""Gathers the shares of context-parallel ranks, with a choice of what the backward does; and splits a packed row.

`"own"`: every rank computes the SAME loss from the gathered sequence, so each already has the full gradient and keeps
its own part. Summing here would count the gradient `cp` times.
`"summed"`: every rank computes a different part of the loss, so the gradients are summed over the ranks.
A packed row is described by `padded_bounds` `[sequences + 1]`, Megatron's `cu_seqlens` with padding, over all ranks. It
may be on the device: nothing here waits for it.
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.packing.zigzag import zigzag_merge

Gradient = Literal["own", "summed"]


def gather_shares(share: Tensor, cp_group: ProcessGroup | None, gradient: Gradient = "own") -> Tensor:
    """`[...]` on each rank to `[cp, ...]` on every rank, in rank order; None means a group of one rank."""
    _check(gradient)
    if cp_group is None:
        return share[None]
    gathered: Tensor = _Gather.apply(share, cp_group, gradient)  # type: ignore[no-untyped-call]
    return gathered


def gather_sequence(share: Tensor, cp_group: ProcessGroup | None, gradient: Gradient = "own", dim: int = 1) -> Tensor:
    """The whole padded sequence, in order, from each rank's zigzag share along `dim`."""
    _check(gradient)
    if cp_group is None or cp_group.size() == 1:
        return share
    return zigzag_merge(gather_shares(share, cp_group, gradient).unbind(), dim)


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


def sum_over_ranks(value: Tensor, cp_group: ProcessGroup | None, gradient: Gradient = "own") -> Tensor:
    """The sum of `value` over the ranks, on every rank."""
    _check(gradient)
    if cp_group is None or cp_group.size() == 1:
        return value
    total: Tensor = _Sum.apply(value, cp_group, gradient)  # type: ignore[no-untyped-call]
    return total


def sum_gradient(value: Tensor, group: ProcessGroup | None) -> Tensor:
    """`value` itself, whose gradient is summed over the ranks; Megatron 0.18's own loses that of a strided one."""
    if group is None or group.size() == 1:
        return value
    same: Tensor = _SumGradient.apply(value, group)  # type: ignore[no-untyped-call]
    return same


def _check(gradient: str) -> None:
    if gradient not in ("own", "summed"):
        raise ValueError(f'gradient must be "own" or "summed", not {gradient!r}')


def _all_reduced(value: Tensor, group: ProcessGroup) -> Tensor:
    total = value.clone(memory_format=torch.contiguous_format)
    torch.distributed.all_reduce(total, group=group)
    return total


def _places(bounds: Tensor, tokens: int, ranks: int, device: torch.device) -> Tensor:
    """`[tokens]`: where each token of the whole row stands when the shares are laid one after another."""
    bounds, token = bounds.to(device).long(), torch.arange(tokens, device=device)
    sequence = torch.searchsorted(bounds[1:], token, right=True).clamp_(max=bounds.numel() - 2)
    start = bounds[sequence]
    chunk = ((bounds[sequence + 1] - start) // (2 * ranks)).clamp_(min=1)
    piece, rest = (token - start) // chunk, (token - start) % chunk
    owner = torch.where(piece < ranks, piece, 2 * ranks - 1 - piece)
    return owner * (tokens // ranks) + start // ranks + rest + torch.where(piece < ranks, 0, chunk)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, share: Tensor, group: ProcessGroup, gradient: Gradient) -> Tensor:
        ctx.group, ctx.gradient = group, gradient
        whole = share.new_empty((group.size(), *share.shape))
        torch.distributed.all_gather(list(whole.unbind()), share.contiguous(), group=group)
        return whole

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        whole = _all_reduced(grads[0], ctx.group) if ctx.gradient == "summed" else grads[0]
        return whole[ctx.group.rank()], None, None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, group: ProcessGroup, gradient: Gradient) -> Tensor:
        ctx.group, ctx.gradient = group, gradient
        return _all_reduced(value, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _all_reduced(grads[0], ctx.group) if ctx.gradient == "summed" else grads[0], None, None


class _SumGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _all_reduced(grads[0], ctx.group), None
