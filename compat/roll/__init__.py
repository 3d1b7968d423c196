"""ROLL's log-prob, entropy and distillation functions for models that return `LazyLogits` (attach `DeferredHead`)."""

from mcore_unpatch.compat.requirements import require_megatron

require_megatron(__name__)

from mcore_unpatch.compat.roll.distillation import (  # noqa: E402
    op_compute_gather_by_teacher_indices,
    op_compute_topk_logits,
)
from mcore_unpatch.compat.roll.vocab_parallel import (  # noqa: E402
    vocab_parallel_cross_entropy,
    vocab_parallel_entropy,
    vocab_parallel_logprobs,
)

__all__ = [
    "op_compute_gather_by_teacher_indices",
    "op_compute_topk_logits",
    "vocab_parallel_cross_entropy",
    "vocab_parallel_entropy",
    "vocab_parallel_logprobs",
]
