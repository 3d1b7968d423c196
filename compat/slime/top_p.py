"""The tokens that top-p sampling kept in the rollout, as a mask over this rank's vocabulary."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mcore_unpatch.compat.logits.lazy import LazyLogits
from mcore_unpatch.compat.slime.spans import Span


def keep_mask_of(
    logits: LazyLogits,
    rows: Tensor,
    spans: Sequence[Sequence[Span]],
    total_lengths: Sequence[int],
    response_lengths: Sequence[int],
    token_ids: Sequence[Sequence[int]],
    token_offsets: Sequence[Sequence[int]],
) -> Tensor:
    """`[rows, vocab / tp]`: of response token r, `ids[offsets[r] : offsets[r + 1]]`; all where nothing was recorded."""
    vocabulary, group = logits.shape[-1], logits.head.tp_group
    first = 0 if group is None else group.rank() * vocabulary
    keep = torch.ones(len(rows), vocabulary, dtype=torch.bool, device=logits.device)
    at = 0  # rows are in the order of the spans
    for own, total, response, some_ids, some_offsets in zip(
        spans, total_lengths, response_lengths, token_ids, token_offsets, strict=True
    ):
        ids, offsets = torch.as_tensor(some_ids).long(), torch.as_tensor(some_offsets).long()
        recorded = max(len(offsets) - 1, 0)
        for span in own:
            begin, end = span.tokens.start - (total - response), span.tokens.stop - (total - response)
            stop = min(end, recorded)
            if begin < stop:
                counts = offsets[begin + 1 : stop + 1] - offsets[begin:stop]
                row = torch.arange(at, at + stop - begin).repeat_interleave(counts)
                column = ids[offsets[begin] : offsets[stop]] - first
                here = (column >= 0) & (column < vocabulary)
                keep[at : at + stop - begin] = False
                keep[row[here].to(keep.device), column[here].to(keep.device)] = True
            at += end - begin
    return keep
