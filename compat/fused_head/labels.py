"""Which labels and token ids are in the vocabulary, and the results of rows whose label is not."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mcore_unpatch.compat.fused_head.shards import VocabShard


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
