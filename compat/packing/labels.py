"""Next-token labels that stay inside their sequence, packed or padded, whole or split over context parallelism."""

from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.packing.gather import (
    Gradient,
    gather_packed_row,
    gather_sequence,
    split_packed_row,
    sum_over_ranks,
)
from mcore_unpatch.compat.packing.layout import PackedLayout, zigzag_split


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


def next_token_labels(
    tokens: Tensor,
    *,
    packed_seq_params: Any | None = None,
    lengths: Tensor | None = None,
    cp_group: ProcessGroup | None = None,
    fill: int = -100,
) -> Tensor:
    """The token that follows each of `tokens` `[b, s]` in its own sequence; `fill` where none follows.

    With `packed_seq_params` the row holds several sequences, laid out by its padded bounds. `lengths` `[sequences]` are
    the lengths without padding, one per packed sequence or one per row; nothing follows the last real token. If not
    given, they come from `cu_seqlens_q` where it differs from the padded bounds.
    With `cp_group` each rank passes its zigzag share and gets the labels of that share: one small collective, no host
    sync.
    """
    ranks, rank = (1, 0) if cp_group is None else (cp_group.size(), cp_group.rank())
    bounds = _bounds(tokens, packed_seq_params, ranks)  # [sequences + 1], over all ranks
    packed = packed_seq_params is not None
    whole = gather_packed_row(tokens, bounds, cp_group) if packed else gather_sequence(tokens, cp_group)
    place = torch.arange(whole.shape[1], device=tokens.device)
    sequence = torch.searchsorted(bounds[1:], place, right=True).clamp_(max=bounds.numel() - 2)
    if lengths is None and packed_seq_params is not None:
        lengths = packed_seq_params.cu_seqlens_q.diff()
    count = bounds.numel() - 1 if packed else len(tokens)
    end = bounds.diff()[sequence] if lengths is None else _ends(lengths, sequence, packed_seq_params, count)
    labels = whole.roll(-1, 1).where(place - bounds[sequence] + 1 < end, fill)
    return split_packed_row(labels, bounds, cp_group) if packed else zigzag_split(labels, ranks, rank)


def _bounds(tokens: Tensor, packed_seq_params: Any | None, ranks: int) -> Tensor:
    if ranks > 1 and tokens.shape[1] % 2:
        raise ValueError(f"tokens: expected a zigzag share, two chunks of equal length, got {list(tokens.shape)}")
    if packed_seq_params is None:
        return torch.arange(2, device=tokens.device) * (tokens.shape[1] * ranks)
    if tokens.shape[0] != 1:
        raise ValueError(f"tokens: expected one packed row, [1, tokens], got {list(tokens.shape)}")
    padded = packed_seq_params.cu_seqlens_q_padded
    bounds: Tensor = packed_seq_params.cu_seqlens_q if padded is None else padded
    return bounds.to(tokens.device).long()


def _ends(lengths: Tensor, sequence: Tensor, packed_seq_params: Any | None, sequences: int) -> Tensor:
    """Where the real tokens end: per token of the one row when packed, per row otherwise."""
    if lengths.shape != (sequences,):
        what = "row" if packed_seq_params is None else "packed sequence"
        raise ValueError(f"lengths: expected one per {what}, [{sequences}], got {list(lengths.shape)}")
    lengths = lengths.to(sequence.device)
    return lengths[:, None] if packed_seq_params is None else lengths[sequence]
