"""ROLL's functions by their names and arguments, for `LazyLogits`; real logits go to ROLL's own.

ROLL asks for log-probs first and for the entropy of the same logits afterwards, in another function. Both come from the
pass of the first: its entropy is remembered for as long as the logits live.
"""

from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from mcore_unpatch.compat.logits.lazy import LazyLogits
from mcore_unpatch.compat.logits.real import real_logits_to

_entropy_of: WeakKeyDictionary[LazyLogits, Tensor] = WeakKeyDictionary()


@real_logits_to("mcore_adapter.parallel_functions.vocab_parallel")
def vocab_parallel_logprobs(vocab_parallel_logits: LazyLogits, target: Tensor, use_fused_kernel: bool = True) -> Tensor:
    """Log-probs `[b, s]` of `target` `[b, s]`. `use_fused_kernel` changes nothing."""
    out = vocab_parallel_logits.compute(target, entropy=True)
    assert out.logprobs is not None
    assert out.entropy is not None
    _entropy_of[vocab_parallel_logits] = out.entropy
    return out.logprobs


@real_logits_to("roll.third_party.megatron.tensor_parallel")
def vocab_parallel_entropy(
    vocab_parallel_logits: LazyLogits, used_fp32: bool = True, use_fused_kernel: bool = True
) -> Tensor:
    """Entropy `[b, s]` in fp32: of the pass that gave these logits' log-probs, else of its own."""
    found = _entropy_of.get(vocab_parallel_logits)
    needs_grad = torch.is_grad_enabled() and vocab_parallel_logits.requires_grad
    if found is None or (needs_grad and not found.requires_grad):
        return vocab_parallel_logits.entropy()
    return found


@real_logits_to("megatron.core.tensor_parallel.cross_entropy")
def vocab_parallel_cross_entropy(
    vocab_parallel_logits: LazyLogits, target: Tensor, label_smoothing: float = 0.0
) -> Tensor:
    """Megatron's function, as ROLL calls it: the loss of each token, 0 where there is no label."""
    if label_smoothing:
        raise NotImplementedError(
            "label_smoothing: LazyLogits have none; pass 0, or the real logits to Megatron's own."
        )
    return -vocab_parallel_logits.log_probs(target)
