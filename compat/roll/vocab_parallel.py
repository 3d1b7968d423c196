"""ROLL's functions by their names and arguments; they take `LazyLogits` where ROLL's take logits.

ROLL asks for log-probs first and for the entropy of the same logits afterwards, in another function. Both come from the
pass of the first: its entropy is remembered for as long as the logits live.
"""

from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from mcore_unpatch.compat.logits.lazy import LazyLogits, require_lazy

_entropy_of: WeakKeyDictionary[LazyLogits, Tensor] = WeakKeyDictionary()


def vocab_parallel_logprobs(vocab_parallel_logits: LazyLogits, target: Tensor, use_fused_kernel: bool = True) -> Tensor:
    """Log-probs `[b, s]` of `target` `[b, s]`. `use_fused_kernel` changes nothing."""
    logits = require_lazy(vocab_parallel_logits, "vocab_parallel_logprobs")
    out = logits.compute(target, entropy=True)
    assert out.logprobs is not None
    assert out.entropy is not None
    _entropy_of[logits] = out.entropy
    return out.logprobs


def vocab_parallel_entropy(
    vocab_parallel_logits: LazyLogits, used_fp32: bool = True, use_fused_kernel: bool = True
) -> Tensor:
    """Entropy `[b, s]` in fp32: of the pass that gave these logits' log-probs, else of its own."""
    logits = require_lazy(vocab_parallel_logits, "vocab_parallel_entropy")
    found = _entropy_of.get(logits)
    if found is None or (torch.is_grad_enabled() and logits.requires_grad and not found.requires_grad):
        return logits.entropy()
    return found


def vocab_parallel_cross_entropy(
    vocab_parallel_logits: LazyLogits, target: Tensor, label_smoothing: float = 0.0
) -> Tensor:
    """Megatron's function, as ROLL calls it: the loss of each token, 0 where there is no label."""
    if label_smoothing:
        raise NotImplementedError(
            "label_smoothing: LazyLogits have none; pass 0, or the real logits to Megatron's own."
        )
    return -require_lazy(vocab_parallel_logits, "vocab_parallel_cross_entropy").log_probs(target)
