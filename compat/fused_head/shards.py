"""Tensor parallelism: where this rank's shard lies, and how the shards' results are merged.

Per call: one gather of a few integers, one gather of row statistics, one more for top-k. Backward: one all-reduce,
beside the last product of the weight's gradient.
"""

from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.fused_head.problem import RowStats


@dataclass(frozen=True)
class VocabShard:
    """This rank's range of the vocabulary; plain integers, or 0-dim tensors where only the device knows them."""

    start: int | Tensor
    total: int | Tensor
    group: ProcessGroup | None


# What the ranks of a group must agree on: the argument, and what of it.
_COMMON = (
    ("weight", "hidden size"),
    ("hidden", "number of tokens"),
    ("mask or labels", "number of rows to compute"),
    ("max_rows", "bound (-1: none)"),
)


def checks_ranks(group: ProcessGroup | None) -> bool:
    """Whether ranks that disagree are to be told at the price of a wait: with TORCH_DISTRIBUTED_DEBUG=DETAIL.

    Without, a call that need not wait cannot tell, and ranks with different rows would wait for each other for ever.
    """
    if group is None:
        return False
    return dist.get_debug_level() == dist.DebugLevel.DETAIL  # type: ignore[attr-defined,no-untyped-call,no-any-return]


def locate_shard(
    weight: Tensor, rows: tuple[int, int | Tensor, int | None], group: ProcessGroup | None, on_host: bool
) -> tuple[VocabShard, int | Tensor]:
    """The shard's range from the sizes of all shards, and how many rows are live; waits for the device if `on_host`.

    `rows` says how many tokens there are, how many of them are live, and the bound of the caller.
    """
    (shard_rows, width), (tokens, live_count, bound) = weight.shape, rows
    if group is None:
        return VocabShard(0, shard_rows, None), int(live_count) if on_host else live_count
    # Filled on the device: a copy from the host would stall a GPU and cannot be captured in a CUDA graph.
    known = (shard_rows, width, tokens, live_count, -1 if bound is None else bound)
    facts = torch.empty(len(known), dtype=torch.int64, device=weight.device)
    for slot, fact in zip(facts, known, strict=True):
        slot.copy_(fact) if isinstance(fact, Tensor) else slot.fill_(fact)
    everyone = gather(facts, group)
    rank = group.rank()
    if not on_host:
        return VocabShard(everyone[:rank, 0].sum(), everyone[:, 0].sum(), group), live_count
    sizes, *common = everyone.t().tolist()
    for (name, what), seen in zip(_COMMON, common, strict=True):
        if len(set(seen)) > 1:
            raise ValueError(f"{name}: expected the same {what} on every rank of tp_group, got {seen}")
    return VocabShard(sum(sizes[:rank]), sum(sizes), group), common[2][rank]


def merge_stats(stats: RowStats, shard: VocabShard) -> RowStats:
    """Statistics of the whole vocabulary from those of each shard; top-k columns become token ids."""
    if stats.topk_logits is not None and stats.topk_columns is not None:
        stats = _merge_topk(stats, stats.topk_logits, stats.topk_columns, shard)
    if shard.group is None or stats.row_max.numel() == 0:
        return stats
    moments = None if stats.moments is None else gather(stats.moments, shard.group)  # [ranks, 4, rows]
    if moments is not None:
        stats = replace(stats, moments=torch.cat([moments[:, :1].amin(0), moments[:, 1:].sum(0)]))
    numbers = [stats.row_max, stats.sum_exp, stats.sum_exp_z, stats.sum_exp_squared]
    packed = torch.stack([number for number in numbers if number is not None])
    chosen = None if stats.chosen is None else stats.chosen.t()
    everyone = gather(packed if chosen is None else torch.cat([packed, chosen]), shard.group)
    columns = iter(everyone[:, : len(packed)].unbind(1))  # each [ranks, rows]
    maxima, sums_exp = next(columns), next(columns)
    row_max = maxima.amax(0)
    max_change = maxima - row_max
    rescale = max_change.exp()
    sum_exp_z = (rescale * (next(columns) + sums_exp * max_change)).sum(0) if stats.sum_exp_z is not None else None
    sum_exp_squared = (rescale * rescale * next(columns)).sum(0) if stats.sum_exp_squared is not None else None
    return replace(
        stats,
        row_max=row_max,
        sum_exp=(sums_exp * rescale).sum(0),
        sum_exp_z=sum_exp_z,
        sum_exp_squared=sum_exp_squared,
        chosen=None if chosen is None else everyone[:, len(packed) :].sum(0).t(),
    )


def _merge_topk(stats: RowStats, logits: Tensor, columns: Tensor, shard: VocabShard) -> RowStats:
    ids = columns + shard.start
    if shard.group is not None and logits.numel():
        # One gather for both: the logits travel as bits beside the ids.
        bits = torch.int64 if logits.dtype == torch.float64 else torch.int32
        everyone = gather(torch.stack([logits.view(bits), ids.to(bits)]), shard.group)  # [ranks, 2, rows, k]
        candidates, candidate_ids = everyone.permute(1, 2, 0, 3).flatten(2)  # each [rows, ranks * k]
        candidates = candidates.contiguous().view(logits.dtype)
        logits, kept = candidates.topk(logits.shape[1], dim=1)
        ids = candidate_ids.gather(1, kept).long()
    return replace(stats, topk_logits=logits, topk_columns=ids)


def gather(mine: Tensor, group: ProcessGroup) -> Tensor:
    """Everyone's tensor, stacked: `[ranks, ...]`."""
    everyone = mine.new_empty(group.size() * mine.numel())
    dist.all_gather_into_tensor(everyone, mine.flatten(), group=group)
    return everyone.view(group.size(), *mine.shape)


@dataclass(frozen=True)
class Rows:
    """The rows of a call: all tokens, or those that a mask and labels select."""

    shape: torch.Size
    index: Tensor | None  # [rows] tokens to compute, all when None
    live: Tensor | None  # [rows] which of them are truly selected, all when None
    sound: Tensor | None  # 0-dim; False on the device turns every result into NaN, where raising would mean waiting

    @property
    def count(self) -> int:
        """How many rows are computed."""
        return self.shape.numel() if self.index is None else self.index.shape[0]

    def take(self, per_token: Tensor) -> Tensor:
        """The computed rows of a tensor shaped like the labels, or with more dimensions behind."""
        flat = per_token.reshape(self.shape.numel(), *per_token.shape[len(self.shape) :])
        return flat if self.index is None else flat[self.index]

    def take_grad(self, per_token: Tensor) -> Tensor:
        """The gradient of what `spread` spreads, from that of its result."""
        grad = self.take(per_token)
        for counts in (self.live, self.sound):
            grad = grad if counts is None else grad.where(counts, 0)
        return grad

    def spread(self, values: Tensor) -> Tensor:
        """Results `[rows, ...]` in the shape of the labels, 0 where nothing was computed."""
        if self.live is not None:
            values = values.where(self.live.view(-1, *[1] * (values.dim() - 1)), 0)
        if self.index is not None:
            empty = values.new_zeros((self.shape.numel(), *values.shape[1:]))
            values = empty.index_copy(0, self.index, values)
        if self.sound is not None and values.dtype.is_floating_point:
            values = values.where(self.sound, torch.nan)
        return values.reshape((*self.shape, *values.shape[1:]))


def select_rows(
    shape: torch.Size, chosen: Tensor | None, live_count: int | Tensor, bound: int | None, sound: Tensor | None
) -> Rows:
    """The chosen rows: `live_count` of them, or, where only the device knows that number, `bound`; None: all."""
    if chosen is None:
        return Rows(shape, None, None, sound)
    if isinstance(live_count, int):
        if bound is not None and bound < live_count:
            raise ValueError(
                f"max_rows: expected at least {live_count}, the rows with a label that the mask keeps, got {bound}"
            )
        return Rows(shape, None if live_count == shape.numel() else _first(chosen, live_count), None, sound)
    if bound is None or bound == shape.numel():
        return Rows(shape, None, chosen, sound)
    index = _first(chosen, bound)
    enough = live_count <= bound
    return Rows(shape, index, chosen[index], enough if sound is None else enough & sound)


def _first(chosen: Tensor, count: int) -> Tensor:
    """The first `count` chosen tokens in order, without a device sync."""
    return (~chosen).to(torch.uint8).argsort(stable=True)[:count]


@dataclass(frozen=True)
class LabelRows:
    """The labels of the computed rows, sorted into tokens, ignored ones and those outside the vocabulary."""

    targets: Tensor  # [rows] the label's column, counted from this shard's first
    known: Tensor  # [rows] the label is a token
    stray: Tensor  # [rows] the label is neither a token nor ignored

    def settle(self, logprob: Tensor, logsumexp: Tensor, out_of_vocab_grad: str) -> Tensor:
        """Log-prob 0 where the label is not a token; "legacy" keeps the gradient of `-logsumexp` for those."""
        nothing = torch.zeros_like(logprob)
        if out_of_vocab_grad == "legacy":
            nothing = torch.where(self.stray, logsumexp.detach() - logsumexp, nothing)
        return torch.where(self.known, logprob, nothing)


def sort_labels(ids: Tensor, shard: VocabShard, vocab_size: int | None, ignore_index: int | None) -> LabelRows:
    """Sort token ids `[rows]` against the vocabulary."""
    ids = ids.long()
    inside = (ids >= 0) & (ids < (shard.total if vocab_size is None else vocab_size))
    meant = torch.ones_like(inside) if ignore_index is None else ids != ignore_index
    return LabelRows(ids - shard.start, inside & meant, ~inside & meant)
