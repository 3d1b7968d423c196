"""The interface between the operator and its backends: what one receives and returns, and how shards are merged.

A backend knows one rank's shard and nothing of masks, ignored labels, process groups or `main_grad`.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from .settings import waiting_is_free

NO_LOGIT = -1e30  # stands for "no logit": its exponential is 0, and, unlike -inf, 0 times it is 0 and not NaN
_Value = TypeVar("_Value")


def needed(value: _Value | None) -> _Value:
    """What is there because it was asked for."""
    assert value is not None
    return value


@dataclass(frozen=True)
class Problem:
    """Rows of hidden states against one shard of the vocabulary: `logits = hidden[rows] @ weight.T * scale`."""

    hidden: Tensor  # [tokens, h], cast to the weight's dtype before the product
    weight: Tensor  # [shard, h]
    _: KW_ONLY
    rows: Tensor | None = None  # [rows] the tokens to compute, all when None
    chosen: Tensor | None = None  # [rows, k] columns of tokens; outside `0 <= column < columns` it is not this shard's
    scale: float | Tensor = 1.0  # of the raw product, `logit_scale / temperature`: one for all rows, or [rows, 1]
    columns: int  # the first so many columns are vocabulary
    entropy: bool = False
    sum_pi_squared: bool = False
    topk: int = 0
    tile_bytes: int
    keep_bytes: int = 0  # what the forward may hold for the backward; 0 where no backward follows

    @property
    def row_count(self) -> int:
        """How many rows are computed."""
        return (self.hidden if self.rows is None else self.rows).shape[0]


@dataclass(frozen=True)
class RowStats:
    """Per row, over the columns of one shard; `z` is a logit."""

    row_max: Tensor  # [rows] max z
    sum_exp: Tensor  # [rows] sum exp(z - row_max)
    sum_exp_z: Tensor | None  # [rows] sum exp(z - row_max) * (z - row_max), for the entropy
    sum_exp_squared: Tensor | None  # [rows] sum exp(z - row_max)^2
    chosen: Tensor | None  # [rows, k] z of the chosen columns, 0 where they are not this shard's
    topk_logits: Tensor | None  # [rows, k] descending, NO_LOGIT beyond the shard's columns
    topk_columns: Tensor | None  # [rows, k]
    kept: tuple[Tensor, ...] = ()  # what this backend's backward uses up instead of making it again


@dataclass(frozen=True)
class RowGrads:
    """The gradient of a logit: `p * (softmax + entropy * log p + squares * p)`, and more at the chosen columns.

    `log p = z - row_max - log_sum`: where logits are large, `row_max + log_sum` has lost digits that `z - row_max` has.
    """

    row_max: Tensor  # [rows] over the whole vocabulary
    log_sum: Tensor  # [rows] over the whole vocabulary
    softmax_coefficient: Tensor  # [rows]
    entropy_coefficient: Tensor | None  # [rows]
    squares_coefficient: Tensor | None  # [rows]
    target_coefficients: Tensor | None  # [rows, k] one column may stand there several times: all are added up
    target_columns: Tensor | None  # [rows, k] as `Problem.chosen`: those outside are not this shard's
    target_logprobs: Tensor | None  # [rows, k] `log p` there, as the forward gave it
    kept: tuple[Tensor, ...] = ()  # `RowStats.kept`, the first time


@dataclass(frozen=True)
class WeightGradBuffer:
    """Where the weight's gradient goes: `[shard, h]`, added to what is there or written over it."""

    buffer: Tensor
    accumulate: bool


TakeGrad = Callable[[Tensor], None] | None  # None where a gradient is not needed
GradBuffer = WeightGradBuffer | None


Backward = Callable[[TakeGrad, GradBuffer], None]  # as `TorchBackend.backward`, of what is known
# From the operands of a tile's rows and columns, and where these are, to the gradient of its logits.
GradOfTile = Callable[[Tensor, Tensor, slice, slice], Tensor]


@dataclass(frozen=True)
class VocabShard:
    """This rank's range of the vocabulary: `size` rows of the head from `start` on, as many as every rank has."""

    start: int
    size: int
    total: int
    group: ProcessGroup | None


def merge_stats(stats: RowStats, shard: VocabShard) -> RowStats:
    """Statistics of the whole vocabulary from those of each shard; top-k columns become token ids."""
    group = shard.group
    if group is None or stats.row_max.numel() == 0:
        return stats
    if stats.topk_logits is not None and stats.topk_columns is not None:
        stats = _merge_topk(stats, stats.topk_logits, stats.topk_columns + shard.start, group)
    numbers = [stats.row_max, stats.sum_exp, stats.sum_exp_z, stats.sum_exp_squared]
    packed = torch.stack([number for number in numbers if number is not None])
    chosen = None if stats.chosen is None else stats.chosen.t()
    everyone = gather_stats(packed if chosen is None else torch.cat([packed, chosen]), shard)
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


def _merge_topk(stats: RowStats, logits: Tensor, ids: Tensor, group: ProcessGroup) -> RowStats:
    """One gather for both: the logits travel as bits beside the ids."""
    bits = torch.int64 if logits.dtype == torch.float64 else torch.int32
    everyone = gather(torch.stack([logits.view(bits), ids.to(bits)]), group)  # [ranks, 2, rows, k]
    candidates, candidate_ids = everyone.permute(1, 2, 0, 3).flatten(2)  # each [rows, ranks * k]
    best, kept = candidates.contiguous().view(logits.dtype).topk(logits.shape[1], dim=1)
    return replace(stats, topk_logits=best, topk_columns=candidate_ids.gather(1, kept).long())


def gather_stats(mine: Tensor, shard: VocabShard) -> Tensor:
    """Everyone's numbers of the rows, `[ranks, numbers, rows]`; shards of another size raise, or make them NaN."""
    everyone = gather(torch.cat([mine, torch.full_like(mine[:1], shard.size)]), needed(shard.group))
    sizes = everyone[:, -1]
    equal = (sizes == shard.size).all()
    if waiting_is_free(equal) and not equal:
        got = sizes[:, 0].long().tolist()
        raise ValueError(f"weight: expected the same number of rows on every rank of tp_group, got {got}")
    return everyone[:, :-1].where(equal, torch.nan)


def gather(mine: Tensor, group: ProcessGroup) -> Tensor:
    """Everyone's tensor, stacked: `[ranks, ...]`."""
    everyone = mine.new_empty(group.size() * mine.numel())
    dist.all_gather_into_tensor(everyone, mine.flatten(), group=group)
    return everyone.view(group.size(), *mine.shape)
