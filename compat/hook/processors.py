"""The library of processors. `b` is the batch, `s` the sequence on this rank (the packed row, `b = 1`, for THD)."""

from ..requirements import require_hook

require_hook(__name__)

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf, log, nan
from types import MappingProxyType
from typing import Any, Literal, TypeGuard

import torch
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
from torch import Tensor

from ..fused_head.linear_kl import Divergence, Kind, run_kl
from ..fused_head.plan import VocabOutput
from ..fused_head.problem import NO_LOGIT, needed
from ..fused_head.settings import check_choice, check_counts
from . import call as hook
from .attach import call_with_processor
from .find import find_language_model, foreign_code
from .head import HeadCall, HeadProcessor, as_rows, check_head, head_pass, lent_weight, run_layer_hooks, selection_mask


class LogProbs(HeadProcessor):
    """Log-probs of the labels: `[b, s]` fp32, 0 where there is no label."""

    gives = MappingProxyType({"log_probs": "logprobs"})


class Entropy(HeadProcessor):
    """Entropy of the next-token distribution: `[b, s]` fp32, with its gradient. Needs no labels."""

    gives = MappingProxyType({"entropy": "entropy"})


class LogProbsAndEntropy(HeadProcessor):
    """`Outputs(log_probs, entropy)`, each `[b, s]` fp32, from the same pass; both 0 where there is no label."""

    gives = MappingProxyType({"log_probs": "logprobs", "entropy": "entropy"})


class TokenLoss(HeadProcessor):
    """Cross-entropy per token, `[b, s]` fp32, as Megatron returns it when labels are given; 0 for `ignore_index`."""

    gives = MappingProxyType({"loss": "logprobs"})

    def results(self, call: hook.HookCall, out: VocabOutput) -> dict[str, Any]:
        """`loss`; raises if the model has a loss of its own, which may be more than the cross-entropy."""
        if (foreign := foreign_code(call.compute_language_model_loss)) is not None:
            text = f"the loss of this model is its own ({foreign}), and TokenLoss() gives Megatron's cross-entropy; "
            raise hook.HookError(f"{text}call the model without a processor, or use LogProbs().")
        return {"loss": -needed(out.logprobs)}


class TopKLogits(HeadProcessor):
    """The `k` largest logits of the whole vocabulary: `Outputs(topk_logits, topk_ids, logsumexp)`. Needs no labels.

    `topk_logits` `[b, s, k]` fp32, scaled and descending; `topk_ids` `[b, s, k]` token ids; `logsumexp` `[b, s]`:
    `topk_logits - logsumexp[..., None]` are log-probs.
    """

    gives = MappingProxyType({name: name for name in ("topk_logits", "topk_ids", "logsumexp")})

    def __init__(self, *, k: int, **options: Any) -> None:
        super().__init__(**options)
        check_counts(k=(k, 1))
        self.topk = k


class LogProbsAt(HeadProcessor):
    """Log-probs of the context's `token_ids`: `[b, s, k]` fp32; 0 for an id outside the vocabulary. Needs no labels."""

    gives = MappingProxyType({"log_probs_at": "token_logprobs"})


class SumPiSquared(HeadProcessor):
    """The sum of the squared probabilities of the next token: `[b, s]` fp32, with its gradient. Needs no labels."""

    gives = MappingProxyType({"sum_pi_squared": "sum_pi_squared"})


@dataclass(unsafe_hash=True)
class HeadInputs:
    """Returns `[b, s, h]`: the hidden states that the output layer would receive, MuP's factor applied.

    Nothing is gathered (sequence parallelism leaves `[b, s / tp, h]`), and gradients are not summed over ranks.
    `.weight` is this rank's shard `[vocab / tp, h]`, tied or not, from the last call; `keep` is called with it each
    time. With gradient accumulation fusion its gradient goes to `main_grad`.
    """

    keep: Callable[[Tensor], None] | None = None
    weight: Tensor | None = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.keep is not None and not callable(self.keep):
            raise TypeError(f"keep: expected a function to call with the weight, got {self.keep!r}")

    def __call__(self, **keywords: Any) -> Tensor:
        """Return the layer's input. Labels only serve the MTP loss; without MTP layers they raise a ValueError."""
        call = hook.HookCall.of(keywords)
        if call.labels is not None and not call.config.mtp_num_layers:
            text = (
                "labels: HeadInputs returns hidden states and no loss, and this model has no MTP layers to use labels; "
            )
            text += "leave them out (other processors take them from HookContext(labels=...)), or use TokenLoss."
            raise ValueError(text)
        check_head(call)
        run_layer_hooks(call)
        self.weight = lent_weight(call)
        if self.keep is not None:
            self.keep(self.weight)
        return call.finish(call.hidden_states)


class Compose:
    """Several processors in one call, with all results in one `Outputs`.

    Those that read the head share a single pass, with equal `HeadOptions`; if one of them takes labels, all their
    results are 0 in a row without. Any other is called by itself, and its result has the name of its class.
    """

    def __init__(self, *processors: hook.Processor) -> None:
        if not processors:
            raise ValueError("Compose needs at least one processor.")
        for processor in processors:
            hook.require_processor(processor)
        self.processors = processors
        self.readers = [p for p in processors if _can_share(p)]
        for reader in self.readers[1:]:
            first = self.readers[0]
            for option, mine in vars(first.options).items():
                theirs = getattr(reader.options, option)
                if mine is not theirs and (isinstance(mine, Tensor) or isinstance(theirs, Tensor) or mine != theirs):
                    both = (
                        f"{type(first).__name__} has {option}={mine!r}, {type(reader).__name__} has {option}={theirs!r}"
                    )
                    raise ValueError(f"composed processors must have the same options, but {both}.")
        lengths = sorted({reader.topk for reader in self.readers} - {0})
        if len(lengths) > 1:
            text = f"k: composed processors ask for the {' and the '.join(map(str, lengths))} largest logits under one "
            raise ValueError(f"{text}name; ask for k={lengths[-1]} and take the first of them.")
        taken: dict[str, Any] = {}
        for processor, name in [(p, name) for p in processors for name in _names(p)]:
            source = processor if _can_share(processor) else object()
            if _can_share(processor) and type(processor).results is HeadProcessor.results:
                source = processor.gives[name]
            if taken.setdefault(name, source) != source:
                raise ValueError(f"Two composed processors both return {name!r}; leave one out, or rename its class.")

    def __call__(self, **keywords: Any) -> hook.Outputs:
        """Run the shared pass and every other processor."""
        call = hook.HookCall.of(keywords)
        results: dict[str, Any] = {}
        if self.readers:
            asked = {field for reader in self.readers for field in reader.gives.values()}
            most = max(reader.topk for reader in self.readers)
            shared = head_pass(call, self.readers[0].options, asked, most)
        for processor in self.processors:
            if _can_share(processor):
                results |= processor.results(call, shared)
            else:
                results |= _named(processor, processor(**keywords))
        return hook.Outputs(**results)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compose) and self.processors == other.processors

    def __hash__(self) -> int:
        return hash(self.processors)


def _can_share(processor: hook.Processor) -> TypeGuard[HeadProcessor]:
    """Whether its results are those of the shared pass: it does no more."""
    return isinstance(processor, HeadProcessor) and type(processor).__call__ is HeadProcessor.__call__


def _names(processor: hook.Processor) -> tuple[str, ...]:
    """The names that the results of one called separately have."""
    return tuple(processor.gives) if isinstance(processor, HeadProcessor) else (type(processor).__name__.lower(),)


def _named(processor: hook.Processor, result: Any) -> dict[str, Any]:
    if isinstance(processor, HeadProcessor) and isinstance(result, hook.Outputs):
        return result
    names = _names(processor)
    return {names[0] if len(names) == 1 else type(processor).__name__.lower(): result}


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
            text = "this pipeline stage of the teacher has no LM head; attach HeadInputs, run Megatron's schedule, and "
            raise hook.HookError(f"{text}give what the last stage returns to TeacherStates.from_inputs.")
        return cls.from_inputs(model, hidden, head.weight)

    @classmethod
    def from_inputs(cls, model: Any, hidden: Tensor, weight: Tensor) -> "TeacherStates":
        """Of what a teacher with `HeadInputs` returned, and its `.weight`; MuP's factor is in the hidden states."""
        if weight.untyped_storage().size() == 0:
            text = "the weight of the teacher's LM head was freed after its forward (FSDP shards it again)"
            raise hook.HookError(f"{text}; leave the output layer unsharded.")
        config: Any = find_language_model(model).model.config
        group = hook.resolve_groups(model).tp
        if config.sequence_parallel and group is not None and group.size() > 1:
            hidden = gather_from_sequence_parallel_region(hidden.detach().transpose(0, 1), group=group).transpose(0, 1)
        return cls(hidden.detach(), weight.detach())


@dataclass(frozen=True)
class TeacherTopK:
    """A teacher by its most probable tokens. A token whose log-prob is minus infinity is left out."""

    token_ids: Tensor  # [b, s, k] global ids, each once
    log_probs: Tensor  # [b, s, k] over the whole vocabulary, at the temperature of the loss


class DistillationLoss(HeadProcessor):
    """The divergence of the student from the context's `teacher`: `[b, s]` fp32, with gradients to the student alone.

    `kind` and `beta` are those of `linear_kl`; the temperature divides the logits of both models. `rest` is for a
    `TeacherTopK`: what becomes of the tokens that are not among the k. "zero": the teacher's k are its whole
    distribution, and sum to 1; the student's is over the vocabulary. "renormalised": the student's k sum to 1 too.
    "ignored": both are over the vocabulary, and the sum is over the k alone (no divergence: it may be negative).
    """

    gives = MappingProxyType({"distillationloss": "token_logprobs"})

    def __init__(
        self,
        *,
        kind: Kind = "forward",
        beta: float = 0.5,
        rest: Literal["zero", "renormalised", "ignored"] = "zero",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_choice("rest", rest, "zero", "renormalised", "ignored")
        self.divergence, self.rest = Divergence(kind, beta), rest

    def __call__(self, **keywords: Any) -> Tensor:
        """`[b, s]`, 0 where the mask is."""
        call = hook.HookCall.of(keywords)
        teacher = hook.HookContext.of(call.context).teacher
        if teacher is None:
            raise hook.MissingContextError("the teacher is missing; pass teacher= in the context.")
        if isinstance(teacher, TeacherTopK):
            return self._from_top_k(call, teacher)
        if isinstance(teacher, TeacherStates):
            return self._from_states(call, teacher)
        raise TypeError(f"teacher: expected TeacherStates or TeacherTopK, got {type(teacher).__name__}")

    def _from_states(self, call: hook.HookCall, teacher: TeacherStates) -> Tensor:
        head = HeadCall(call, self.options)
        query = head.query()
        states = as_rows("teacher.hidden", teacher.hidden.detach(), head.hidden)
        tensors = (head.hidden, call.weight, states, teacher.weight.detach())
        return run_kl(tensors, self.divergence, query, teacher.logit_scale).transpose(0, 1).contiguous()

    def _from_top_k(self, call: hook.HookCall, teacher: TeacherTopK) -> Tensor:
        kind, beta = self.divergence.kind, self.divergence.beta
        if kind == "reverse" and self.rest == "zero":
            text = 'rest="zero" makes the reverse KL infinite, because the student has tokens that the teacher has not'
            raise ValueError(f'{text}; use "renormalised" or "ignored".')
        if teacher.log_probs.shape != teacher.token_ids.shape:
            expected, got = list(teacher.token_ids.shape), list(teacher.log_probs.shape)
            raise ValueError(f"teacher.log_probs: expected {expected} as token_ids, got {got}")
        asked = replace(hook.HookContext.of(call.context), token_ids=teacher.token_ids)
        student = needed(head_pass(replace(call, context=asked), self.options, {"token_logprobs"}).token_logprobs)
        taken = teacher.log_probs != -inf
        a = student.masked_fill(~taken, NO_LOGIT)
        b = teacher.log_probs.detach().to(a.dtype).masked_fill(~taken, NO_LOGIT)
        if self.rest != "ignored":
            b = b.log_softmax(-1)
        if self.rest == "renormalised":
            a = a.log_softmax(-1)
        loss = self.divergence.of_log_probs(a, b)
        if kind == "jsd" and self.rest == "zero":  # elsewhere the mixture is the student's alone
            loss = loss - (1 - beta) * log(1 - beta) * (1 - a.exp().sum(-1))
        mask = selection_mask(call, asked) if self.options.use_loss_mask else asked.mask
        live = taken.any(-1) if mask is None else taken.any(-1) & (mask != 0)
        ids, words = teacher.token_ids, self.options.vocab_size or call.output_layer.output_size
        unknown = ((ids < 0) | (ids >= words)) & taken & live[..., None]
        if ids.is_cpu and unknown.any():
            text = f"teacher.token_ids: {int(ids[unknown][0])} is no token of the student's vocabulary"
            raise ValueError(f"{text}; give tokens that are to be left out a log-prob of minus infinity.")
        return loss.masked_fill(unknown.any(-1), nan).where(live, 0)  # an error, or NaN where that would mean waiting
