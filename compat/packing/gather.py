"""Gathers the shares of context-parallel ranks, with a choice of what the backward does; and splits a packed row.

`"own"`: every rank computes the SAME loss from the gathered sequence, so each already has the full gradient and keeps
its own part. Summing here would count the gradient `cp` times.
`"summed"`: every rank computes a different part of the loss, so the gradients are summed over the ranks.
A packed row is described by `padded_bounds` `[sequences + 1]`, Megatron's `cu_seqlens` with padding, over all ranks. It
may be on the device: nothing here waits for it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.fused_head.checks import check_choice
from mcore_unpatch.compat.hook.call import Outputs
from mcore_unpatch.compat.packing.layout import zigzag_merge


def is_last_stage(pp_group: ProcessGroup | None) -> bool:
    """Whether this rank holds the output layer."""
    return pp_group is None or pp_group.rank() == pp_group.size() - 1


def compute_on_last_stage(compute: Callable[[], Any], pp_group: ProcessGroup | None, device: torch.device) -> Any:
    """Call `compute` on the last stage only, and return its result on every stage."""
    return broadcast_from_last_stage(compute() if is_last_stage(pp_group) else None, pp_group, device)


def broadcast_from_last_stage(result: Any, pp_group: ProcessGroup | None, device: torch.device) -> Any:
    """`result` of the last stage on every stage: tensors, or `Outputs`, dicts, tuples and lists of them, nested.

    What other stages pass is ignored. Tensors arrive on `device` and without a graph: the backward belongs to the last
    stage. On that stage `result` itself is returned, graph and all.
    """
    if pp_group is None or pp_group.size() == 1:
        return result
    last = pp_group.size() - 1
    tensors: list[Tensor] = []
    plan = _describe(result, tensors) if is_last_stage(pp_group) else None
    message = [plan]
    torch.distributed.broadcast_object_list(message, group=pp_group, group_src=last)
    if is_last_stage(pp_group):
        for tensor in tensors:
            torch.distributed.broadcast(tensor.detach().contiguous(), group=pp_group, group_src=last)
        return result
    return _rebuild(message[0], device, pp_group, last)


class _Hole(tuple[torch.Size, torch.dtype]):
    """The place of a tensor in the description of a result: its shape and its dtype."""


def _describe(value: Any, tensors: list[Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors.append(value)
        return _Hole((value.shape, value.dtype))
    return _map(value, lambda item: _describe(item, tensors))


def _rebuild(plan: Any, device: torch.device, group: ProcessGroup, source: int) -> Any:
    if isinstance(plan, _Hole):
        tensor = torch.empty(plan[0], dtype=plan[1], device=device)
        torch.distributed.broadcast(tensor, group=group, group_src=source)
        return tensor
    return _map(plan, lambda item: _rebuild(item, device, group, source))


def _map(value: Any, change: Callable[[Any], Any]) -> Any:
    """A container of the same kind with every item changed; anything else as it is."""
    if isinstance(value, (Mapping, Outputs)):
        items = {key: change(item) for key, item in value.items()}
        return Outputs(**items) if isinstance(value, Outputs) else items
    if isinstance(value, (tuple, list)):
        changed = [change(item) for item in value]
        return type(value)(*changed) if hasattr(value, "_fields") else type(value)(changed)
    return value


Gradient = Literal["own", "summed"]


def gather_shares(share: Tensor, cp_group: ProcessGroup | None, gradient: Gradient = "own") -> Tensor:
    """`[...]` on each rank to `[cp, ...]` on every rank, in rank order; None means a group of one rank."""
    _check(gradient)
    if cp_group is None:
        return share[None]
    gathered: Tensor = _Gather.apply(share, cp_group)  # type: ignore[no-untyped-call]
    return sum_gradient(gathered, cp_group) if gradient == "summed" else gathered


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
    total: Tensor = _Sum.apply(value, cp_group)  # type: ignore[no-untyped-call]
    return sum_gradient(total, cp_group) if gradient == "summed" else total


def sum_gradient(value: Tensor, group: ProcessGroup | None) -> Tensor:
    """`value` itself, whose gradient is summed over the ranks; Megatron 0.18's own loses that of a strided one."""
    if group is None or group.size() == 1:
        return value
    same: Tensor = _SumGradient.apply(value, group)  # type: ignore[no-untyped-call]
    return same


def _check(gradient: str) -> None:
    check_choice("gradient", gradient, "own", "summed")


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
    def forward(ctx: Any, share: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        whole = share.new_empty((group.size(), *share.shape))
        torch.distributed.all_gather(list(whole.unbind()), share.contiguous(), group=group)
        return whole

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0][ctx.group.rank()], None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, group: ProcessGroup) -> Tensor:
        return _all_reduced(value, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


class _SumGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _all_reduced(grads[0], ctx.group), None
