"""Lazy logits without a model."""

import torch
from torch import Tensor

from mcore_unpatch.compat import LazyLogits, ProcessGroups
from mcore_unpatch.compat.logits.lazy import LMHead

BATCH, LENGTH, VOCAB, HIDDEN = 2, 6, 32, 8


def lazy(dtype: torch.dtype = torch.float32, weight: Tensor | None = None) -> LazyLogits:
    """`[BATCH, LENGTH, VOCAB]`, the same ones in every call; hidden states and head require gradients."""
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(BATCH, LENGTH, HIDDEN, generator=generator, dtype=dtype).requires_grad_()
    made = torch.randn(VOCAB, HIDDEN, generator=generator, dtype=dtype).requires_grad_()
    return LazyLogits(hidden, LMHead.of(made if weight is None else weight, ProcessGroups()))
