"""The LM head of a hook call, read in one pass over the vocabulary; what does more than multiply is refused."""

from ..requirements import require_hook

require_hook(__name__)

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from threading import get_ident
from typing import Any, ClassVar, Literal
from weakref import WeakKeyDictionary

import torch
from megatron.core.tensor_parallel import ColumnParallelLinear, gather_from_sequence_parallel_region
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn import Module

from ..fused_head.autograd import into_main_grad
from ..fused_head.plan import VocabOutput, run_pass
from ..fused_head.settings import BackendName, LogprobQuery, OutOfVocabGrad, check_choice
from ..packing import next_token_labels, sum_gradient
from . import call as hook
from .find import PROBING, VALUE_HEADS, foreign_code


@dataclass(frozen=True, kw_only=True)
class HeadOptions:
    """How the head is read; the same for all processors that share a pass.

    `shift="aligned"`: the label at position i is what position i predicts, as in Megatron's own `labels`.
    `shift="next_token"`: the labels are the model's `input_ids`, shifted one to the left here, within each sequence;
    its last token has no label. The model's `labels` are then for its MTP loss alone.
    `use_loss_mask`: rows where the model's `loss_mask` (not shifted) is zero are not computed and return 0, as with a
    `mask` in the context, and so are those whose label is `ignore_index`; None computes all rows.
    `scale_logits` (by MuP's factor), `reduce_hidden_grad` (over tensor-parallel ranks with the whole hidden states):
    as Megatron does. The other options are those of `linear_logprob` and `LogprobOptions`.
    """

    temperature: float | Tensor = 1.0
    shift: Literal["aligned", "next_token"] = "aligned"
    use_loss_mask: bool = False
    ignore_index: int | None = -100
    vocab_size: int | None = None
    scale_logits: bool = True
    reduce_hidden_grad: bool = True
    out_of_vocab_grad: OutOfVocabGrad = "zero"
    keep_bytes: int = 0
    backend: BackendName = "auto"
    tile_bytes: int | None = None

    def __post_init__(self) -> None:
        check_choice("shift", self.shift, "aligned", "next_token")
        self.query()  # checks the others

    def query(self, **asked: Any) -> LogprobQuery:
        """What is asked of the head, with these options."""
        asked.setdefault("temperature", self.temperature)
        return LogprobQuery(**{name: getattr(self, name) for name in _ALSO_ASKED}, **asked)


_ALSO_ASKED = ("ignore_index", "vocab_size", "out_of_vocab_grad", "keep_bytes", "backend", "tile_bytes")


class HeadCall:
    """One call of the hook whose head was found to be readable: its hidden states, its groups, its context."""

    def __init__(self, call: hook.HookCall, options: HeadOptions) -> None:
        self.call, self.options, self.context = call, options, hook.HookContext.of(call.context)
        self.groups = self.context.groups or hook.resolve_groups()
        self.hidden = enter_head(call, self.groups)  # [s, b, h]

    def query(self, **asked: Any) -> LogprobQuery:
        """What is asked of the rows of `hidden`; tensors are `[b, s]` or `[b, s, k]`."""
        options, context, call = self.options, self.context, self.call
        asked["mask"] = selection_mask(call, context) if options.use_loss_mask else context.mask
        asked["temperature"] = options.temperature if context.temperature is None else context.temperature
        for name, value in asked.items():
            if isinstance(value, Tensor) and not (name == "temperature" and value.dim() == 0):
                asked[name] = as_rows(name, value, self.hidden)
        asked["max_rows"] = context.max_rows
        labels = asked.get("labels")
        if labels is not None and options.shift == "next_token" and options.ignore_index is not None:
            if all(one is None for one in (asked["mask"], context.lengths, context.max_rows)):
                # Only the ends of sequences have no label: to leave out so few rows is not worth a wait.
                asked["max_rows"] = labels.numel()
        return options.query(
            tp_group=self.groups.tp,
            # The backward of the gather of sequence-parallel shares has summed it already.
            reduce_hidden_grad=options.reduce_hidden_grad and self.hidden is call.hidden_states,
            fuse_main_grad=fuses_weight_grad(call),
            logit_scale=call.logit_scale if options.scale_logits else 1.0,
            **asked,
        )


def head_pass(call: hook.HookCall, options: HeadOptions, asked: Collection[str], topk: int = 0) -> VocabOutput:
    """Run the one pass for the fields of `VocabOutput` that are `asked` for: `[b, s]`, or `[b, s, k]`."""
    head = HeadCall(call, options)
    context = head.context
    if "token_logprobs" in asked and context.token_ids is None:
        raise hook.MissingContextError("token ids are missing; pass token_ids= [b, s, k] in the context.")
    query = head.query(
        labels=_labels(head) if "logprobs" in asked else None,
        entropy="entropy" in asked,
        topk=topk,
        sum_pi_squared="sum_pi_squared" in asked,
        token_ids=context.token_ids if "token_logprobs" in asked else None,
    )
    return run_pass(head.hidden, call.weight, query).transposed()


class HeadProcessor:
    """A processor that makes one pass over the vocabulary with `HeadOptions`; subclasses say what they give."""

    gives: ClassVar[Mapping[str, str]]  # the name of each result, and the field of the pass that it is
    topk = 0  # how many of the largest logits the pass must find

    def __init__(self, **options: Any) -> None:
        self.options = HeadOptions(**options)

    def results(self, call: hook.HookCall, out: VocabOutput) -> dict[str, Any]:
        """Name and value of each result."""
        return {name: getattr(out, field) for name, field in self.gives.items()}

    def __call__(self, **keywords: Any) -> Any:
        """Return a single result as it is, several as `Outputs`."""
        call = hook.HookCall.of(keywords)
        results = self.results(call, head_pass(call, self.options, self.gives.values(), self.topk))
        return hook.Outputs(**results) if len(results) > 1 else next(iter(results.values()))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


def selection_mask(call: hook.HookCall, context: hook.HookContext) -> Tensor:
    """`[b, s]`: the mask of the context, else the model's `loss_mask`; raises if both are missing."""
    mask = call.loss_mask if context.mask is None else context.mask
    if mask is None:
        raise hook.MissingContextError("no mask: pass loss_mask= to the model or mask= in the context.")
    return mask


def enter_head(call: hook.HookCall, groups: hook.ProcessGroups) -> Tensor:
    """Check the head, wait for its weight, and return `[s, b, h]`; if gathered, the backward sums their gradient."""
    check_head(call)
    hook.check_tp_group(groups.tp, call.output_layer, call.config)
    run_layer_hooks(call)
    if not call.config.sequence_parallel or groups.tp is None or groups.tp.size() == 1:
        return call.hidden_states
    hidden: Tensor = gather_from_sequence_parallel_region(
        call.hidden_states, tensor_parallel_output_grad=True, group=groups.tp
    )
    return hidden


def whole_hidden(call: hook.HookCall, groups: hook.ProcessGroups) -> Tensor:
    """`[s, b, h]`, whose gradient is summed over the tensor-parallel ranks, once for all that is made of it."""
    hidden = enter_head(call, groups)
    return sum_gradient(hidden, groups.tp) if hidden is call.hidden_states else hidden


def _labels(head: HeadCall) -> Tensor:
    call, context, options = head.call, head.context, head.options
    if options.shift == "aligned":
        labels = call.labels if context.labels is None else context.labels
        if labels is None:
            way = 'pass labels= to the model or in the context, or use shift="next_token"'
            raise hook.MissingContextError(f"labels are missing; {way}.")
        return labels
    if context.labels is not None:
        text = 'shift="next_token" makes labels of input_ids, and labels= in the context are labels already'
        raise ValueError(f'{text}: leave them out, or use shift="aligned".')
    if call.input_ids is None:
        raise hook.MissingContextError('shift="next_token" needs token ids; pass input_ids= to the model.')
    return next_token_labels(
        call.input_ids,
        packed_seq_params=call.packed_seq_params,
        lengths=context.lengths,
        cp_group=hook.sequence_group(call.packed_seq_params, head.groups, call.config),
        fill=-100 if options.ignore_index is None else options.ignore_index,
    )


def as_rows(name: str, value: Tensor, hidden: Tensor) -> Tensor:
    """`[b, s]`, or `[b, s, k]` of what has several numbers per token, as the rows of `hidden` `[s, b, h]`."""
    shape, k = [hidden.shape[1], hidden.shape[0]], ["k"] * (name in ("token_ids", "teacher.hidden"))
    if list(value.shape[:2]) != shape or value.dim() != 2 + len(k):
        expected = f"[batch, sequence{', k' * len(k)}] = {shape + k} to match the hidden states"
        raise ValueError(f"{name}: expected {expected}, got {list(value.shape)}")
    return value.transpose(0, 1)


# The hooks on a layer that were seen to hand gradients through.
_transparent: WeakKeyDictionary[Module, tuple[Any, ...]] = WeakKeyDictionary()


def check_head(call: hook.HookCall) -> None:
    """Raise unless the layer is a plain column-parallel product whose weight is present on this rank."""
    refuse_critic(call.output_layer, call.output_weight)
    if "forward" in vars(call.output_layer):
        refuse_head(call.output_layer, "its forward was replaced on the instance", "remove that patch")
    if (reason := _obstacle(call)) is not None:
        refuse_head(call.output_layer, reason)


def refuse_critic(layer: Any, weight: Tensor | None = None, remedy: str = "call it without the processor") -> None:
    """Raise for a value head: values have no distribution, however many a layer of one's own gives per token."""
    weight = getattr(layer, "weight", None) if weight is None else weight
    if layer in VALUE_HEADS or (isinstance(weight, Tensor) and weight.dim() == 2 and len(weight) == 1):
        text = f"this model is a critic: its output_layer ({type(layer).__qualname__}) gives values and no logits"
        raise hook.UnsupportedHeadError(f"{text}, so there are no log-probs; {remedy}, and it returns the values.")


def refuse_head(layer: Module, reason: str, remedy: str = "use the Logits processor, which calls the layer") -> None:
    """Raise for this layer, with the reason and the way out."""
    kind = f"{type(layer).__module__}.{type(layer).__qualname__}"
    raise hook.UnsupportedHeadError(f"output_layer ({kind}): {reason}; {remedy}.")


def fuses_weight_grad(call: hook.HookCall) -> bool:
    """Whether the layer adds its weight's gradient to `main_grad`; Megatron then ignores the weight's `.grad`."""
    return bool(getattr(call.output_layer, "gradient_accumulation_fusion", call.config.gradient_accumulation_fusion))


def lent_weight(call: hook.HookCall) -> Tensor:
    """The weight for code that multiplies by it directly: its gradient goes where the layer's own would."""
    return into_main_grad(call.weight) if fuses_weight_grad(call) else call.weight


def run_layer_hooks(call: hook.HookCall) -> None:
    """Run the layer's own hooks on one row: in them Megatron waits for weights that are still being gathered.

    One that changes the input, the output or its gradient (tried once, with the output as a leaf) would be lost: raise.
    """
    layer = call.output_layer
    hooks = tuple(layer._forward_hooks.values())
    if not layer._forward_pre_hooks and not hooks:
        return
    probing = torch.is_grad_enabled() and _transparent.get(layer, ()) != hooks
    row = call.hidden_states[:1].detach().to(call.weight.dtype)
    before = _state(row)
    seen: dict[str, Any] = {}
    me = get_ident()  # another thread may call the layer too

    def look_in(_: Module, args: Any, kwargs: dict[str, Any] | None = None) -> None:
        if get_ident() == me and kwargs is not None:
            seen["given"], seen["weight"] = _state(args[0]), [*args[1:2], kwargs.get("weight")][0]

    def look_out(_: Module, args: Any, output: Any) -> Any:
        if get_ident() != me:
            return None
        seen["leaf"] = output[0].detach().requires_grad_(probing)
        seen["made"] = seen["leaf"].clone() if probing else output[0]
        seen["state"] = _state(seen["made"])
        return seen["made"], *output[1:]

    handles = (
        layer.register_forward_pre_hook(look_in, with_kwargs=True),
        layer.register_forward_hook(look_out, prepend=True),
    )
    token = PROBING.set(True)
    try:  # gradients as in the call: a pre-hook may make the weight from parameters (weight norm)
        result = layer(row, weight=call.output_weight)[0]
    finally:
        PROBING.reset(token)
        for handle in handles:
            handle.remove()
    if seen["given"] != before:
        refuse_head(layer, "a forward pre-hook on it changes its input")
    if seen["weight"] is not None and seen["weight"] is not call.weight:
        refuse_head(layer, "a forward pre-hook on it changes its weight")
    if _state(result) != seen["state"]:
        refuse_head(layer, "a forward hook on it changes its output")
    if probing and result is not seen["made"]:
        probe = torch.linspace(-1, 1, result.numel(), device=result.device).to(result.dtype).view_as(result)
        grads = torch.autograd.grad(result, seen["leaf"], probe, allow_unused=True) if result.requires_grad else [None]
        if grads[0] is None or not torch.equal(grads[0], probe):
            refuse_head(layer, "a forward hook on it changes the gradient of its output")
    if probing:
        _transparent[layer] = hooks


def _obstacle(call: hook.HookCall) -> str | None:
    """Why the weight of this layer does not say what its logits are."""
    layer = call.output_layer
    weight = getattr(layer, "weight", None) if call.output_weight is None else call.output_weight
    if isinstance(weight, DTensor):
        return "its weight is sharded between calls (FSDP); leave the output layer out of the sharding"
    if not isinstance(weight, Tensor) or weight.dim() != 2:
        return f"it has no 2-D weight ({list(weight.shape) if isinstance(weight, Tensor) else None})"
    if getattr(layer, "bias", None) is not None:
        return "it has a bias"
    if call.config.defer_embedding_wgrad_compute:
        return "config.defer_embedding_wgrad_compute computes its weight gradient from inputs it would never see"
    if not isinstance(layer, ColumnParallelLinear):
        others = "an adapter around the head, or a head of Transformer Engine, which multiplies in fp8?"
        return f"it is not a ColumnParallelLinear of Megatron ({others})"
    rows = getattr(layer, "output_size_per_partition", len(weight))
    if len(weight) != rows or max(getattr(layer, "gtp_remat_size", 1), getattr(weight, "gtp_remat_size", 1)) > 1:
        return f"its weight is sharded further: only {len(weight)} of its {rows} rows are on this rank"
    if layer._backward_hooks or layer._backward_pre_hooks:
        return "a backward hook on it would never run, because the layer is not called"
    for name in ("forward", "_forward_impl"):  # a layer of Megatron's calls those that it overrides
        methods = [vars(one).get(name) for one in (layer, *type(layer).__mro__)]
        if (foreign := foreign_code(*methods)) is not None:
            return f"its {name} is defined in {foreign} and may do more than the product (soft-capped logits?)"
    return None


def _state(tensor: Tensor) -> tuple[Any, ...]:
    """A tensor's memory, its layout, and how often it was written to (not counted in inference mode)."""
    version = 0 if tensor.is_inference() else tensor._version
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, version
