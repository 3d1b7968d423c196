"""Distillation at the hook: a student's log-probs at given tokens, and its divergence from a teacher.

Neither builds `[tokens, vocab]`. A teacher is known by the hidden states before its LM head, which are exact and many
times smaller than its logits, or by its most probable tokens. Everything is per token, so packing and context
parallelism need nothing more than the same tokens of the teacher on this rank.
"""

from mcore_unpatch.compat.requirements import require_hook

require_hook(__name__)

from dataclasses import dataclass, replace
from math import inf, log, nan
from typing import Any, Literal

import torch
from torch import Tensor

from mcore_unpatch.compat.fused_head.linear_kl import Divergence, Kind, run_kl
from mcore_unpatch.compat.fused_head.problem import NO_LOGIT, needed, waiting_is_free
from mcore_unpatch.compat.fused_head.settings import LogprobQuery, check_choice
from mcore_unpatch.compat.hook.attach import call_with_processor
from mcore_unpatch.compat.hook.call import HookCall, HookContext, resolve_groups
from mcore_unpatch.compat.hook.find import find_language_model
from mcore_unpatch.compat.hook.head import HeadOptions, as_rows, batch_first, enter_head, head_pass, selection_mask
from mcore_unpatch.compat.hook.processors import HeadInputs
from mcore_unpatch.compat.hook.state import HookError, MissingContextError


@dataclass(frozen=True)
class TeacherStates:
    """A teacher by its hidden states and its LM head: exact, over the whole vocabulary."""

    hidden: Tensor  # [b, s, h'], what the head multiplies
    weight: Tensor  # [vocab / tp, h'], the shard with the same tokens as the student's
    logit_scale: float = 1.0

    @classmethod
    def of(cls, model: Any, *args: Any, **inputs: Any) -> "TeacherStates":
        """Of a teacher in this process, which is called with its forward's arguments and without gradients."""
        head = HeadInputs()
        with torch.no_grad():
            hidden = call_with_processor(model, head, *args, **inputs)
        if head.weight is None:
            raise HookError(
                "this pipeline stage of the teacher has no LM head; run the teacher in Megatron's schedule with "
                "HeadInputs attached, and give what the last stage returns to TeacherStates.from_inputs."
            )
        return cls.from_inputs(model, hidden, head.weight)

    @classmethod
    def from_inputs(cls, model: Any, hidden: Tensor, weight: Tensor) -> "TeacherStates":
        """Of what a teacher with `HeadInputs` returned, and its `.weight`; MuP's factor is in the hidden states."""
        if weight.untyped_storage().size() == 0:
            raise HookError(
                "the weight of the teacher's LM head was freed after its forward (FSDP shards it again); leave the "
                "output layer unsharded."
            )
        config: Any = find_language_model(model).model.config
        group = resolve_groups(model).tp
        if config.sequence_parallel and group is not None and group.size() > 1:
            from megatron.core.tensor_parallel import gather_from_sequence_parallel_region

            hidden = gather_from_sequence_parallel_region(hidden.detach().transpose(0, 1), group=group).transpose(0, 1)
        return cls(hidden.detach(), weight.detach())


@dataclass(frozen=True)
class TeacherTopK:
    """A teacher by its most probable tokens. A token whose log-prob is minus infinity is left out."""

    token_ids: Tensor  # [b, s, k] global ids, each once
    log_probs: Tensor  # [b, s, k] over the whole vocabulary, at the temperature of the loss


@dataclass(frozen=True, kw_only=True)
class DistillationLoss(HeadOptions):
    """The divergence of the student from the context's `teacher`: `[b, s]` fp32, with gradients to the student alone.

    The teacher is a `TeacherStates` or a `TeacherTopK`.
    `kind` and `beta` are those of `linear_kl`; the temperature divides the logits of both models.
    `rest` is for `TeacherTopK`: what becomes of the tokens that are not among the k.
    "zero": the teacher's k are its whole distribution, and sum to 1; the student's is over the vocabulary.
    "renormalised": the student's k sum to 1 too. "ignored": both are over the vocabulary, and the sum is over the k
    alone (no divergence: it may be negative).
    """

    kind: Kind = "forward"
    beta: float = 0.5
    rest: Literal["zero", "renormalised", "ignored"] = "zero"

    def __post_init__(self) -> None:
        super().__post_init__()
        Divergence(self.kind, self.beta)  # checks them
        check_choice("rest", self.rest, "zero", "renormalised", "ignored")

    def __call__(self, **keywords: Any) -> Tensor:
        """`[b, s]`, 0 where the mask is."""
        call = HookCall.of(keywords)
        teacher = _teacher_of(call)
        if isinstance(teacher, TeacherTopK):
            return self._from_top_k(call, teacher)
        return self._from_states(call, teacher)

    def _from_states(self, call: HookCall, teacher: TeacherStates) -> Tensor:
        context = HookContext.of(call.context)
        if context.keep_mask is not None or self.batch_invariant:
            raise ValueError("keep_mask, batch_invariant: only a TeacherTopK takes them; pass one or leave them out.")
        hidden = enter_head(call, call.groups)  # [s, b, h]
        query = self.query(LogprobQuery, call, hidden)
        loss = run_kl(
            (hidden, call.weight, as_rows("teacher.hidden", teacher.hidden.detach(), hidden), teacher.weight.detach()),
            Divergence(self.kind, self.beta),
            (query.temperature / query.logit_scale, query.temperature / teacher.logit_scale),
            query,
        )
        return batch_first(loss)

    def _from_top_k(self, call: HookCall, teacher: TeacherTopK) -> Tensor:
        if self.kind == "reverse" and self.rest == "zero":
            raise ValueError(
                'rest="zero" makes the reverse KL infinite, because the student has tokens that the teacher has not; '
                'use "renormalised" or "ignored", or make your own of LogProbsAt() and Entropy().'
            )
        if teacher.log_probs.shape != teacher.token_ids.shape:
            raise ValueError(
                f"teacher.log_probs: expected {list(teacher.token_ids.shape)} as token_ids, got "
                f"{list(teacher.log_probs.shape)}"
            )
        asked = replace(HookContext.of(call.context), token_ids=teacher.token_ids)
        student = needed(head_pass(replace(call, context=asked), self, {"token_logprobs"}).token_logprobs)
        taken = teacher.log_probs != -inf
        a = student.masked_fill(~taken, NO_LOGIT)
        b = teacher.log_probs.detach().to(a.dtype).masked_fill(~taken, NO_LOGIT)
        if self.rest != "ignored":
            b = b.log_softmax(-1)
        if self.rest == "renormalised":
            a = a.log_softmax(-1)
        loss = Divergence(self.kind, self.beta).of_log_probs(a, b)
        if self.kind == "jsd" and self.rest == "zero":  # elsewhere the mixture is the student's alone
            loss = loss - (1 - self.beta) * log(1 - self.beta) * (1 - a.exp().sum(-1))
        mask = selection_mask(call) if self.use_loss_mask else asked.mask
        live = taken.any(-1) if mask is None else taken.any(-1) & (mask != 0)
        ids, words = teacher.token_ids, self.vocab_size or call.output_layer.output_size
        unknown = ((ids < 0) | (ids >= words)) & taken & live[..., None]
        if waiting_is_free(ids) and unknown.any():
            raise ValueError(
                f"teacher.token_ids: {int(ids[unknown][0])} is no token of the student's vocabulary; give tokens that "
                "are to be left out a log-prob of minus infinity."
            )
        return loss.masked_fill(unknown.any(-1), nan).where(live, 0)  # an error, or NaN where that would mean waiting


def _teacher_of(call: HookCall) -> TeacherStates | TeacherTopK:
    teacher = HookContext.of(call.context).teacher
    if teacher is None:
        raise MissingContextError("the teacher is missing; pass teacher= in the context.")
    if not isinstance(teacher, (TeacherStates, TeacherTopK)):
        raise TypeError(f"teacher: expected TeacherStates or TeacherTopK, got {type(teacher).__name__}")
    return teacher
