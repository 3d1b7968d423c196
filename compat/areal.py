"""AReaL's log-prob and entropy functions for models that return `LazyLogits` (attach `DeferredHead`).

They have AReaL's names and arguments; real logits go to AReaL's own functions.
"""

from mcore_unpatch.compat.requirements import require_megatron

require_megatron(__name__)

from typing import TypeVar

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.fused_head.problem import needed
from mcore_unpatch.compat.logits.lazy import LazyLogits, real_logits_to

_HOME = "areal.utils.functional.vocab_parallel"
Rows = TypeVar("Rows", Tensor, LazyLogits)


@real_logits_to(_HOME)
def gather_logprobs(
    logits: LazyLogits,
    labels: Tensor,
    temperature: float = 1.0,
    tp_group: ProcessGroup | None = None,
    chunk_size: int = 1024,
) -> Tensor:
    """Log-probs `[...]` of `labels` `[...]`.

    The group is the model's own, and the work is tiled over the vocabulary: `tp_group` and `chunk_size` change nothing.
    """
    return (logits / temperature).log_probs(labels)


@real_logits_to(_HOME)
def gather_logprobs_entropy(
    logits: LazyLogits,
    labels: Tensor,
    temperature: float = 1.0,
    tp_group: ProcessGroup | None = None,
    chunk_size: int = 1024,
    reuse_logits: bool = False,
) -> tuple[Tensor, Tensor]:
    """Log-probs and entropy, each `[...]`, from one pass. `reuse_logits` changes nothing: no logits are stored."""
    out = (logits / temperature).compute(labels, entropy=True)
    return needed(out.logprobs), needed(out.entropy)


def get_vocab_min_max_logits(logits: LazyLogits | Tensor) -> tuple[Tensor, Tensor]:
    """The smallest and largest logit of each token over the whole vocabulary, without gradient.

    For `output.detach().min(-1).values.float()` and the same with `max`, which see one rank's shard; so do real logits.
    """
    if isinstance(logits, Tensor):
        return logits.detach().amin(-1).float(), logits.detach().amax(-1).float()
    stats = logits.detach().logit_stats()
    return stats.logit_min, stats.logit_max


def get_vocab_mean_norm_logits(logits: LazyLogits | Tensor) -> tuple[Tensor, Tensor]:
    """The mean of each token's logits and their norm, likewise: for `output.mean(-1)` and `output.norm(dim=-1)`."""
    if isinstance(logits, Tensor):
        return logits.detach().float().mean(-1), logits.detach().float().norm(dim=-1)
    stats = logits.detach().logit_stats()
    return stats.logit_mean, stats.logit_norm


def unpad_logits(
    logits: Rows, padding_length: int, cu_seqlens: Tensor | None = None, old_cu_seqlens: Tensor | None = None
) -> Rows:
    """Drop the padding after the row, and that of each sequence: of lazy logits, or of a tensor of results."""
    if padding_length > 0:
        logits = logits[:-padding_length]
    if old_cu_seqlens is None:
        return logits
    assert cu_seqlens is not None
    lengths, starts = old_cu_seqlens.diff().tolist(), cu_seqlens.tolist()
    parts = [logits[start : start + length] for start, length in zip(starts, lengths, strict=False)]
    joined: Rows = torch.cat(parts)  # type: ignore[arg-type, assignment]
    return joined
