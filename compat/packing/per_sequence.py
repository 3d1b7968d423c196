"""Reduces per-token values of a packed row to one value per sequence."""

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.packing.gather import Gradient, sum_over_ranks
from mcore_unpatch.compat.packing.layout import PackedLayout


def sum_per_sequence(
    row: Tensor,
    layout: PackedLayout,
    *,
    mask: Tensor | None = None,
    cp_group: ProcessGroup | None = None,
    gradient: Gradient = "own",
) -> Tensor:
    """`[1, local tokens]` (log-probs, losses) to `[sequences]` sums; padding is not counted.

    `mask` `[1, local tokens]` weights the tokens. With `cp_group` the sums run over all context-parallel ranks;
    `gradient` as in `gather_shares`.
    """
    if row.shape != (1, layout.local_tokens):
        raise ValueError(f"row: expected [1, {layout.local_tokens}], got {list(row.shape)}")
    values = row[0] if mask is None else row[0] * mask.reshape(-1)
    sums = values.new_zeros(len(layout.lengths) + 1).index_add(0, layout.sequence_index(row.device), values)
    return sum_over_ranks(sums[:-1], cp_group, gradient)


def mean_per_sequence(
    row: Tensor,
    layout: PackedLayout,
    *,
    mask: Tensor | None = None,
    cp_group: ProcessGroup | None = None,
    gradient: Gradient = "own",
) -> Tensor:
    """Like `sum_per_sequence`, divided by the number (or the weight) of the tokens; 0 for a sequence without any."""
    ones = torch.ones_like(row, requires_grad=False)
    weight = sum_per_sequence(ones, layout, mask=mask, cp_group=cp_group)
    total = sum_per_sequence(row, layout, mask=mask, cp_group=cp_group, gradient=gradient)
    return total / weight.where(weight != 0, 1)
