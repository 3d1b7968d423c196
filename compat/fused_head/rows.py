"""Which rows are computed, which of their labels are tokens, and how results go back to the shape of the labels."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mcore_unpatch.compat.fused_head.shards import VocabShard


@dataclass(frozen=True)
class Rows:
    """The rows of a call: all tokens, or those the mask selects."""

    shape: torch.Size
    index: Tensor | None  # [rows] tokens to compute, all when None
    live: Tensor | None  # [rows] which of them the mask truly selects, all when None
    sound: Tensor | None  # 0-dim; False on the device turns every result into NaN, where raising would mean waiting

    @property
    def count(self) -> int:
        """How many rows are computed."""
        return self.shape.numel() if self.index is None else self.index.shape[0]

    def take(self, per_token: Tensor) -> Tensor:
        """The computed rows of a tensor shaped like the labels, or with more dimensions behind."""
        flat = per_token.reshape(self.shape.numel(), *per_token.shape[len(self.shape) :])
        return flat if self.index is None else flat[self.index]

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
    """The rows for a mask: `live_count` of them, or, where only the device knows that number, `bound`."""
    if chosen is None:
        return Rows(shape, None, None, sound)
    if isinstance(live_count, int):
        if bound is not None and bound < live_count:
            raise ValueError(
                f"mask_count: expected at least {live_count}, the number of nonzero rows in mask, got {bound}"
            )
        return Rows(shape, _first(chosen, live_count), None, sound)
    assert bound is not None
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
