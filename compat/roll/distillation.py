"""The parts of ROLL's distillation that read logits: a teacher's top k, and a student's logits at its ids."""

from torch import Tensor

from mcore_unpatch.compat.logits.lazy import LazyLogits
from mcore_unpatch.compat.logits.real import real_logits_to
from mcore_unpatch.compat.packing.gather import gather_sequence


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
    assert out.token_logprobs is not None
    group = student_logits.head.tp_group
    known = (ids >= 0) & (ids < student_logits.shape[-1] * (1 if group is None else group.size()))
    found = (out.token_logprobs + out.logsumexp[..., None]).where(known, 0)
    return found.squeeze(-1) if flat else found
