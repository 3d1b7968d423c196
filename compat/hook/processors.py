"""The library of processors. `b` is the batch, `s` the sequence on this rank (the packed row, `b = 1`, for THD)."""

from mcore_unpatch.compat.requirements import require_hook

require_hook(__name__)

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from itertools import product
from types import MappingProxyType
from typing import Any, ClassVar, TypeGuard

from torch import Tensor

from mcore_unpatch.compat.fused_head.plan import VocabOutput
from mcore_unpatch.compat.fused_head.problem import needed
from mcore_unpatch.compat.fused_head.settings import check_count
from mcore_unpatch.compat.hook import head
from mcore_unpatch.compat.hook.call import HookCall, Outputs, Processor, require_processor
from mcore_unpatch.compat.hook.find import foreign_code
from mcore_unpatch.compat.hook.state import HookError


@dataclass(frozen=True, kw_only=True)
class HeadProcessor(head.HeadOptions):
    """A processor that makes one pass over the vocabulary; subclasses say what they give."""

    gives: ClassVar[Mapping[str, str]]  # the name of each result, and the field of the pass that it is

    @property
    def topk(self) -> int:
        """How many of the largest logits the pass must find."""
        return getattr(self, "k", 0)

    def results(self, call: HookCall, out: VocabOutput) -> dict[str, Any]:
        """Name and value of each result."""
        return {name: getattr(out, field) for name, field in self.gives.items()}

    def __call__(self, **keywords: Any) -> Any:
        """Return a single result as it is, several as `Outputs`."""
        call = HookCall.of(keywords)
        results = self.results(call, head.head_pass(call, self, self.gives.values(), self.topk))
        return Outputs(**results) if len(results) > 1 else next(iter(results.values()))


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
    """Cross-entropy per token, `[b, s]` fp32: what Megatron's default path returns when labels are given.

    0 where the label is `ignore_index` (-100). There Megatron gives the log-sum-exp less the largest logit, a number
    that its loss mask hides.
    """

    gives = MappingProxyType({"loss": "logprobs"})

    def results(self, call: HookCall, out: VocabOutput) -> dict[str, Any]:
        """`loss`; raises if the model has a loss of its own, which may be more than the cross-entropy."""
        if (foreign := foreign_code(call.compute_language_model_loss)) is not None:
            raise HookError(
                f"the loss of this model is its own ({foreign}), and TokenLoss() gives Megatron's cross-entropy; call "
                "the model without a processor, or use LogProbs()."
            )
        return {"loss": -needed(out.logprobs)}


@dataclass(frozen=True, kw_only=True)
class SelectedTokenCrossEntropy(HeadProcessor):
    """Cross-entropy of the selected tokens alone: `[selected]` fp32, in the order of the flattened `[b, s]`.

    The context's `mask`, else the model's `loss_mask`, selects; rows not selected are not computed.
    """

    use_loss_mask: bool = True
    gives = MappingProxyType({"selected_loss": "logprobs"})

    def results(self, call: HookCall, out: VocabOutput) -> dict[str, Any]:
        """`selected_loss`."""
        return {"selected_loss": -needed(out.logprobs)[head.selection_mask(call) != 0]}


@dataclass(frozen=True, kw_only=True)
class TopKLogits(HeadProcessor):
    """The `k` largest logits of the whole vocabulary: `Outputs(topk_logits, topk_ids, logsumexp)`.

    `topk_logits` `[b, s, k]` fp32 in descending order (scaled and divided by the temperature), `topk_ids` `[b, s, k]`
    global token ids, `logsumexp` `[b, s]`: `topk_logits - logsumexp[..., None]` are log-probs. Needs no labels.
    """

    k: int
    gives = MappingProxyType({name: name for name in ("topk_logits", "topk_ids", "logsumexp")})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("k", self.k, 1)


class LogProbsAt(HeadProcessor):
    """Log-probs of the context's `token_ids`: `[b, s, k]` fp32; 0 for an id outside the vocabulary. Needs no labels."""

    gives = MappingProxyType({"log_probs_at": "token_logprobs"})


class SumPiSquared(HeadProcessor):
    """The sum of the squared probabilities of the next token: `[b, s]` fp32, with its gradient. Needs no labels."""

    gives = MappingProxyType({"sum_pi_squared": "sum_pi_squared"})


class LogitStats(HeadProcessor):
    """Of the logits of each token, over the vocabulary: `Outputs(logit_min, logit_max, logit_mean, logit_norm)`.

    Each `[b, s]` fp32, scaled and divided by the temperature, without gradient. Needs no labels.
    """

    gives = MappingProxyType({name: name for name in ("logit_min", "logit_max", "logit_mean", "logit_norm")})


@dataclass(frozen=True)
class Logits:
    """What the default path returns without labels: `[b, s, vocab / tp]`, or `[b, s, vocab]` if the layer gathers.

    For callers that pass labels only for Megatron's MTP loss.
    """

    def __call__(self, **keywords: Any) -> Tensor:
        """Call the output layer as Megatron does."""
        call = HookCall.of(keywords)
        logits, _ = call.output_layer(
            call.hidden_states, weight=call.output_weight, runtime_gather_output=call.runtime_gather_output
        )
        return call.finish(logits)


@dataclass(unsafe_hash=True)
class HeadInputs:
    """Returns `[b, s, h]`: the hidden states that the output layer would receive; its weight is in `.weight`.

    This is what a model returns if `output_layer.forward` is replaced by a function that returns its input: MuP's
    factor is applied as to logits, sequence parallelism leaves this rank's share `[b, s / tp, h]`, and the dtype is
    that of the hidden states. Nothing is gathered, and gradients are not summed over tensor-parallel ranks: the code
    that multiplies must do both. The MTP loss is Megatron's own.

    `.weight` is this rank's shard `[vocab / tp, h]`, tied or not, from the last call, or None before the first; `keep`
    is called with it in every call. With gradient accumulation fusion it is a view of the parameter whose gradient goes
    to `main_grad`, because Megatron then ignores the parameter's `.grad`. `attach` treats two with the same `keep` as
    equal: the first one attached runs.
    """

    keep: Callable[[Tensor], None] | None = None
    weight: Tensor | None = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.keep is not None and not callable(self.keep):
            raise TypeError(f"keep: expected a function to call with the weight, got {self.keep!r}")

    def __call__(self, **keywords: Any) -> Tensor:
        """Return the layer's input. Labels only serve the MTP loss; without MTP layers they raise a ValueError."""
        call = HookCall.of(keywords)
        if call.labels is not None and not call.config.mtp_num_layers:
            raise ValueError(
                "labels: HeadInputs returns hidden states and no loss, and this model has no MTP layers to use labels; "
                "leave them out (other processors take them from HookContext(labels=...)), or use TokenLoss."
            )
        head.check_head(call)
        head.run_layer_hooks(call)
        self.weight = head.lent_weight(call)
        if self.keep is not None:
            self.keep(self.weight)
        return call.finish(call.hidden_states)


class Compose:
    """Several processors in one call, with all results in one `Outputs`.

    Those that read the head share a single pass over the vocabulary, so they must have equal `HeadOptions` (temperature
    and so on). If one of them takes labels, a row without a label is left out of all their results, which are 0 there.
    `Logits`, any other processor, and one of a class that overrides `__call__` or `query` are called separately. The
    result has the names that it has alone, or the name of the class.
    """

    def __init__(self, *processors: Processor) -> None:
        for processor in processors:
            require_processor(processor)
        self.processors = processors
        self.readers = [p for p in processors if _can_share(p)]
        for option, first, reader in product(fields(head.HeadOptions), self.readers[:1], self.readers[1:]):
            mine, theirs = getattr(first, option.name), getattr(reader, option.name)
            if mine is not theirs and (isinstance(mine, Tensor) or isinstance(theirs, Tensor) or mine != theirs):
                raise ValueError(
                    f"composed processors must have the same options, but {type(first).__name__} has "
                    f"{option.name}={mine!r}, {type(reader).__name__} has {option.name}={theirs!r}."
                )
        lengths = sorted({reader.topk for reader in self.readers} - {0})
        if len(lengths) > 1:
            raise ValueError(
                f"k: composed processors ask for the {' and the '.join(map(str, lengths))} largest logits under one "
                f"name; ask for k={lengths[-1]} and take the first of them."
            )
        if not processors:
            raise ValueError("Compose needs at least one processor.")
        taken: dict[str, Any] = {}
        for processor, name in [(p, name) for p in processors for name in _names(p)]:
            number = _number(processor, name)
            if taken.setdefault(name, number) != number:
                raise ValueError(f"Two composed processors both return {name!r}; leave one out, or rename its class.")

    def __call__(self, **keywords: Any) -> Outputs:
        """Run the shared pass and every other processor."""
        call = HookCall.of(keywords)
        results: dict[str, Any] = {}
        if self.readers:
            asked = {field for reader in self.readers for field in reader.gives.values()}
            shared = head.head_pass(call, self.readers[0], asked, max(reader.topk for reader in self.readers))
        for processor in self.processors:
            if _can_share(processor):
                results |= processor.results(call, shared)
            else:
                results |= _named(processor, processor(**keywords))
        return Outputs(**results)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compose) and self.processors == other.processors

    def __hash__(self) -> int:
        return hash(self.processors)


def _can_share(processor: Processor) -> TypeGuard[HeadProcessor]:
    """Whether its results are those of the shared pass: it neither does more, nor asks for something else."""
    own = (getattr(type(processor), name, None) is getattr(HeadProcessor, name) for name in ("__call__", "query"))
    return isinstance(processor, HeadProcessor) and all(own)


def _names(processor: Processor) -> tuple[str, ...]:
    """The names that the results of one called separately have."""
    return tuple(processor.gives) if isinstance(processor, HeadProcessor) else (type(processor).__name__.lower(),)


def _number(processor: Processor, name: str) -> Any:
    """What a result is: the field of the shared pass, or the processor that makes something of its own."""
    if not _can_share(processor):
        return object()
    return processor.gives[name] if type(processor).results is HeadProcessor.results else processor


def _named(processor: Processor, result: Any) -> dict[str, Any]:
    if isinstance(processor, HeadProcessor) and isinstance(result, Outputs):
        return dict(result.items())
    names = _names(processor)
    return {names[0] if len(names) == 1 else type(processor).__name__.lower(): result}


@dataclass(frozen=True)
class AsTuple:
    """The same processor, returning several results as a plain tuple, as a schedule plan requires."""

    processor: Processor

    def __post_init__(self) -> None:
        require_processor(self.processor)

    def __call__(self, **keywords: Any) -> Any:
        """Return `Outputs` as a tuple, anything else as it is."""
        result = self.processor(**keywords)
        return tuple(result.values()) if isinstance(result, Outputs) else result
