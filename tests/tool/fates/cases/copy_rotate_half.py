"""Rotation of half of the features, written for our compiler."""

import torch
from megatron.core.models.common.embeddings import rope_utils


def _rotate_half(x, rotary_interleaved):
    if not rotary_interleaved:
        x1, x2 = torch.chunk(x, 2, dim=-1)
        return torch.cat((-x2, x1), dim=-1)
    pairs = x.unflatten(-1, (-1, 2))
    return torch.stack((-pairs[..., 1], pairs[..., 0]), dim=-1).flatten(-2)


rope_utils._rotate_half = _rotate_half
