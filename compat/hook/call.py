"""What a processor is given in one call, the arguments of the hook and the caller's context; and the hook's errors."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Protocol

import torch
import torch.distributed
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.utils._pytree import register_pytree_node


class HookError(RuntimeError):
    """The processor cannot run, or did not run, where the caller asked for it."""


class HookMissingError(HookError):
    """The model's `forward` has no `output_processor`: megatron-core is too old, or something replaced `forward`."""


class WrapperRefusesError(HookError):
    """A wrapper's `forward` takes neither the hook's keywords nor `**kwargs`."""


class HookSwallowedError(HookError):
    """The hook's keywords were accepted, the output stage returned, and the processor was never called."""


class HookBypassedError(HookError):
    """The model's `forward` was called as a method, which skips the hooks that a call of the module runs."""


class LegacyPatchError(HookError):
    """A patch replaced methods of the model and would run instead of the hook, or conflict with it."""


class AttachmentError(HookError):
    """Two processors were given for the same call of the same model."""


class UnsupportedHeadError(HookError):
    """The output layer does more than multiply by its weight, so its weight alone does not give the logits."""


class MissingContextError(HookError):
    """The processor needs a value that is neither in the call nor in its context."""


class Processor(Protocol):
    """Anything Megatron can call as `output_processor`: it takes `**keywords`, of which a later Megatron may have more.

    `HookCall.of(keywords)` gives the typed view. In a schedule plan the result must be a tensor or a tuple of them.
    """

    def __call__(self, **keywords: Any) -> Any:
        """Turn the decoder's output into the model's output."""


def require_processor(processor: Any) -> None:
    """Raise for something Megatron could not call, such as the class `LogProbs` where `LogProbs()` is meant."""
    if isinstance(processor, type):
        raise TypeError(f"processor: pass an instance: {processor.__name__}()")
    if not callable(processor):
        raise TypeError(f"processor: expected a callable that takes the hook's keywords, got {processor!r}")


def is_inference(keywords: Mapping[str, Any] | None = None) -> bool:
    """Whether Megatron's inference mode is on, or a call with these keywords is one for inference."""
    from megatron.core.inference.utils import InferenceMode

    given = keywords or {}
    asked = given.get("inference_context") is not None or given.get("inference_params") is not None
    return asked or InferenceMode.is_active()


@dataclass(frozen=True)
class HookCall:
    """The 16 keywords of Megatron's call; keywords this class does not know are kept in `extras`."""

    hidden_states: Tensor  # [s, b, h]; [s / tp, b, h] under sequence parallelism; s is the packed row for THD
    output_layer: Any
    output_weight: Tensor | None  # the shared embedding of tied models, else None
    labels: Tensor | None  # [b, s]
    loss_mask: Tensor | None  # [b, s]
    input_ids: Tensor | None  # [b, s]
    position_ids: Tensor | None
    attention_mask: Tensor | None
    decoder_input: Tensor | None
    inference_context: Any
    packed_seq_params: Any
    runtime_gather_output: bool | None
    context: Any
    compute_language_model_loss: Callable[[Tensor, Tensor], Tensor]
    scale_logits: Callable[[Tensor], Tensor]
    config: Any
    extras: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> "HookCall":
        """The typed view of one call; raises a TypeError that names the missing keywords."""
        if missing := [name for name in KEYWORDS if name not in keywords]:
            way = f"let Megatron call it, or pass all {len(KEYWORDS)} keywords that Megatron passes"
            raise TypeError(f"this call of the processor is missing {', '.join(missing)}; {way}.")
        extras = MappingProxyType({name: value for name, value in keywords.items() if name not in KEYWORDS})
        return cls(**{name: keywords[name] for name in KEYWORDS}, extras=extras)

    @property
    def weight(self) -> Tensor:
        """This rank's shard `[vocab / tp, h]` of the LM head, tied or not."""
        weight: Tensor = self.output_layer.weight if self.output_weight is None else self.output_weight
        return weight

    @property
    def logit_scale(self) -> float:
        """The factor by which `scale_logits` (MuP) multiplies the logits, measured by calling it."""
        zero, one, two = self.scale_logits(torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)).tolist()
        if zero != 0 or two != 2 * one:
            raise NotImplementedError("scale_logits does not multiply by a constant; use the Logits processor.")
        return float(one)

    def finish(self, logits: Tensor) -> Tensor:
        """What Megatron returns without labels: `[s, b, ...]` scaled (MuP) and turned to `[b, s, ...]`."""
        return self.scale_logits(logits).transpose(0, 1).contiguous()


KEYWORDS = tuple(f.name for f in fields(HookCall) if f.name != "extras")


class Outputs(dict[str, Any]):
    """Several results of one call by name, `out.entropy` or `out["entropy"]`, or in order: `log_probs, entropy = out`.

    Otherwise it is a dict: `in` asks for a name, and `**out` passes all by name.
    """

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())

    def __missing__(self, name: str) -> Any:
        raise KeyError(f"this call returned no {name!r}; it returned {', '.join(self.keys())}.")

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"this call returned no {name!r}; it returned {', '.join(self.keys())}.")
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"cannot set {name!r}: the results of a call are read-only.")


# FSDP looks for tensors in what a module returns, and reduces no gradient of those it does not find.
register_pytree_node(
    Outputs,
    lambda results: (list(results.values()), tuple(results.keys())),
    lambda values, names: Outputs(zip(names, values, strict=True)),
)


@dataclass(frozen=True)
class Logits:
    """What the default path returns without labels: `[b, s, vocab / tp]`, or `[b, s, vocab]` if the layer gathers."""

    def __call__(self, **keywords: Any) -> Tensor:
        """Call the output layer as Megatron does."""
        call = HookCall.of(keywords)
        logits, _ = call.output_layer(
            call.hidden_states, weight=call.output_weight, runtime_gather_output=call.runtime_gather_output
        )
        return call.finish(logits)


_WAYS_TO_GROUPS = (
    "use attach(), which reads the model's groups, pass HookContext(groups=resolve_groups(model)), or initialise "
    "megatron.core.parallel_state."
)


@dataclass(frozen=True)
class ProcessGroups:
    """Tensor, context and pipeline parallel groups; None means a group of one rank."""

    tp: ProcessGroup | None = None
    cp: ProcessGroup | None = None
    pp: ProcessGroup | None = None


def resolve_groups(
    model: Any = None, *, tp: ProcessGroup | None = None, cp: ProcessGroup | None = None, pp: ProcessGroup | None = None
) -> ProcessGroups:
    """Each group from the model's `pg_collection`, else from the argument, else from Megatron's `parallel_state`.

    Raises if an argument names other ranks than the model's own group.
    """
    from megatron.core import parallel_state as state

    collection, initialised = getattr(model, "pg_collection", None), state.model_parallel_is_initialized()

    def resolve(name: str, given: ProcessGroup | None, megatrons: Callable[..., Any]) -> ProcessGroup | None:
        own: ProcessGroup | None = getattr(collection, name, None)
        if own is not None and given is not None and not _same_ranks(own, given):
            text = f"{name}={_ranks(given)} was passed, but the model's pg_collection.{name} is {_ranks(own)}"
            raise ValueError(f"{text}; leave {name} out.")
        found = given if own is None else own
        return megatrons(check_initialized=False) if found is None and initialised else found

    return ProcessGroups(
        tp=resolve("tp", tp, state.get_tensor_model_parallel_group),
        cp=resolve("cp", cp, state.get_context_parallel_group),
        pp=resolve("pp", pp, state.get_pipeline_model_parallel_group),
    )


def check_tp_group(group: ProcessGroup | None, output_layer: Any, config: Any) -> None:
    """Raise unless the head is sharded over this group: with another one, log-probs would be silently wrong."""
    own = getattr(output_layer, "tp_group", None)
    expected = config.tensor_model_parallel_size if own is None else own.size()
    size = 1 if group is None else group.size()
    if size != expected or (own is not None and group is not None and not _same_ranks(own, group)):
        layers = f"{expected} tensor-parallel ranks" if own is None else f"ranks {_ranks(own)}"
        others = "none" if group is None else _ranks(group)
        text = f"the output layer is sharded over {layers}, but the processor's tensor-parallel group is {others}"
        raise MissingContextError(f"{text}; {_WAYS_TO_GROUPS}")


def sequence_group(packed_seq_params: Any, groups: ProcessGroups, config: Any) -> ProcessGroup | None:
    """The ranks that share the sequences of a call, in which Megatron may name them; raises for others than its own."""
    own: ProcessGroup | None = getattr(packed_seq_params, "cp_group", None)
    if own is not None or getattr(packed_seq_params, "local_cp_size", None) is not None:
        return own  # a size without a group is 1
    size = 1 if groups.cp is None else groups.cp.size()
    if size != config.context_parallel_size:
        text = f"config.context_parallel_size is {config.context_parallel_size}, but the processor's context-parallel "
        raise MissingContextError(f"{text}group has {size}; {_WAYS_TO_GROUPS}")
    return groups.cp


def _ranks(group: ProcessGroup) -> list[int]:
    return torch.distributed.get_process_group_ranks(group)


def _same_ranks(left: ProcessGroup, right: ProcessGroup) -> bool:
    return left is right or _ranks(left) == _ranks(right)


@dataclass(frozen=True)
class HookContext:
    """Passed as `output_processor_context`; what is given overrides the model's arguments and the processor's options.

    `max_rows` is an upper bound on the rows that `mask` keeps and that have a label; it avoids the one device sync.
    """

    groups: ProcessGroups | None = None
    temperature: float | Tensor | None = None  # a tensor is [b, s]
    labels: Tensor | None = None  # [b, s]
    mask: Tensor | None = None  # [b, s]
    max_rows: int | None = None
    lengths: Tensor | None = None  # [sequences] without padding, for next-token labels
    token_ids: Tensor | None = None  # [b, s, k] for LogProbsAt
    teacher: Any = None  # for DistillationLoss
    extra: Mapping[str, Any] = field(default_factory=dict)  # for a processor of yours

    @classmethod
    def of(cls, context: Any) -> "HookContext":
        """The context as given: None, a `HookContext`, or a mapping of its fields."""
        if isinstance(context, cls):
            return context
        if context is None:
            return cls()
        if isinstance(context, Mapping):
            return cls().updated(context)
        got = type(context).__name__
        raise TypeError(f"output_processor_context: expected a HookContext, a mapping or None, got {got}")

    def updated(self, values: Mapping[str, Any]) -> "HookContext":
        """The same with other fields."""
        if unknown := [name for name in values if name not in _NAMES]:
            text = f"output_processor_context: unknown key {unknown[0]!r}; the keys are {', '.join(_NAMES)}."
            raise TypeError(f"{text} Put keys of your own under 'extra'.")
        return replace(self, **values)


def complete_context(context: Any, model: Any, processor: Any = None) -> Any:
    """Fill in the model's groups; a context of another type, or of one with `takes_own_context`, stays what it is."""
    if getattr(processor, "takes_own_context", False):
        context = {} if context is None else context
        context.setdefault("groups", resolve_groups(model))
        return context
    if context is not None and not isinstance(context, (HookContext, Mapping)):
        return context
    known = HookContext.of(context)
    given = known.groups or ProcessGroups()
    return replace(known, groups=resolve_groups(model, tp=given.tp, cp=given.cp, pp=given.pp))


_NAMES = HookContext.__dataclass_fields__
