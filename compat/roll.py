"""ROLL's log-prob, entropy and distillation functions for models that return `LazyLogits` (attach `DeferredHead`).

They have ROLL's names and arguments; real logits go to ROLL's own functions. ROLL asks for log-probs first and for the
entropy of the same logits afterwards, in another function. Both come from the pass of the first: its entropy is
remembered for as long as the logits live.
"""

from mcore_unpatch.compat.requirements import require_megatron

require_megatron(__name__)

from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from mcore_unpatch.compat.fused_head.problem import needed
from mcore_unpatch.compat.logits.lazy import LazyLogits, real_logits_to
from mcore_unpatch.compat.packing.gather import gather_sequence, size_and_rank

_entropy_of: WeakKeyDictionary[LazyLogits, Tensor] = WeakKeyDictionary()


@real_logits_to("mcore_adapter.parallel_functions.vocab_parallel")
def vocab_parallel_logprobs(vocab_parallel_logits: LazyLogits, target: Tensor, use_fused_kernel: bool = True) -> Tensor:
    """Log-probs `[b, s]` of `target` `[b, s]`. `use_fused_kernel` changes nothing."""
    out = vocab_parallel_logits.compute(target, entropy=True)
    _entropy_of[vocab_parallel_logits] = needed(out.entropy)
    return needed(out.logprobs)


@real_logits_to("roll.third_party.megatron.tensor_parallel")
def vocab_parallel_entropy(
    vocab_parallel_logits: LazyLogits, used_fp32: bool = True, use_fused_kernel: bool = True
) -> Tensor:
    """Entropy `[b, s]` in fp32: of the pass that gave these logits' log-probs, else of its own."""
    entropy = _entropy_of.get(vocab_parallel_logits)
    needs_grad = torch.is_grad_enabled() and vocab_parallel_logits.requires_grad
    if entropy is None or (needs_grad and not entropy.requires_grad):
        return vocab_parallel_logits.entropy()
    return entropy


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


@real_logits_to("roll")
def op_compute_topk_logits(logits: LazyLogits, topk: int = 0) -> tuple[Tensor, Tensor]:
    """The `topk` largest logits `[b, s, k]` of the whole vocabulary and their ids, of the whole sequence.

    For the body of the strategy's method of this name. 0 means all logits, which are not built here: it raises.
    """
    if topk <= 0:
        raise ValueError(
            f"topk: expected at least 1, got {topk}: a teacher's whole vocabulary would have to be built and sent; set "
            "logits_topk, or compare the two models with LazyLogits.kl."
        )
    top = logits.top_k(topk)
    cp = logits.head.groups.cp
    return gather_sequence(top.topk_logits, cp), gather_sequence(top.topk_ids, cp)


@real_logits_to("roll")
def op_compute_gather_by_teacher_indices(student_logits: LazyLogits, teacher_indices: Tensor | None) -> Tensor:
    """The student's logits at the teacher's ids `[b, s]` or `[b, s, k]`; 0 where there is no such id.

    For the body of the strategy's method of this name. Without ids it raises: all logits are not built here.
    """
    if teacher_indices is None:
        raise ValueError(
            "teacher_indices: expected the ids of the teacher's top k, got None: all logits of the student would have "
            "to be built; set logits_topk, or compare the two models with LazyLogits.kl."
        )
    flat = teacher_indices.dim() == student_logits.dim() - 1
    ids = (teacher_indices[..., None] if flat else teacher_indices).long()
    out = student_logits.compute(token_ids=ids)
    ranks, _ = size_and_rank(student_logits.head.groups.tp)
    known = (ids >= 0) & (ids < (student_logits.head.settings.vocab_size or student_logits.shape[-1] * ranks))
    gathered = (needed(out.token_logprobs) + out.logsumexp[..., None]).where(known, 0)
    return gathered.squeeze(-1) if flat else gathered
