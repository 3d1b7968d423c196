"""One pass over the vocabulary for a hook call: gather hidden states, shift labels, return results as `[b, s]`."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from mcore_unpatch.compat.fused_head.checks import check_choice, check_temperature
from mcore_unpatch.compat.fused_head.linear_logprob import VocabOutput, run_pass
from mcore_unpatch.compat.fused_head.settings import HeadSettings, PassSettings, VocabQuery
from mcore_unpatch.compat.hook.call import HookCall
from mcore_unpatch.compat.hook.context import HookContext, ProcessGroups, check_tp_group, resolve_groups, sequence_group
from mcore_unpatch.compat.hook.errors import MissingContextError
from mcore_unpatch.compat.hook.output_layer import check_head, fuses_weight_grad, run_layer_hooks
from mcore_unpatch.compat.packing.gather import sum_gradient
from mcore_unpatch.compat.packing.labels import next_token_labels


@dataclass(frozen=True, kw_only=True)
class HeadOptions(PassSettings):
    """How the head is read; the same for all processors that share a pass.

    `shift="aligned"`: the label at position i is what position i predicts, as in Megatron's own `labels`.
    `shift="next_token"`: labels are token ids (`input_ids` if there are no labels) and are shifted one to the left
    here, within each packed sequence and across context-parallel chunks; the last token of a sequence has no label.
    `use_loss_mask`: rows where the model's `loss_mask` is zero are not computed and return 0, as with a `mask` in the
    context. The mask applies to output positions; it is not shifted.
    `scale_logits`: apply MuP's factor, as Megatron does. `reduce_hidden_grad`: if every tensor-parallel rank has the
    whole hidden states, sum their gradient over the ranks, as Megatron does. Turn these two off to reproduce the
    numbers of code that did neither.
    The other options are passed to `linear_logprob`.
    """

    temperature: float | Tensor = 1.0
    shift: Literal["aligned", "next_token"] = "aligned"
    use_loss_mask: bool = False
    scale_logits: bool = True
    reduce_hidden_grad: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_temperature(self.temperature)
        check_choice("shift", self.shift, "aligned", "next_token")

    def settings(self, call: HookCall, groups: ProcessGroups, gathered: bool, **more: Any) -> HeadSettings:
        """Those of a pass over the head of this call; `gathered` as from `enter_head`."""
        return self.of_head(
            tp_group=groups.tp,
            reduce_hidden_grad=self.reduce_hidden_grad and not gathered,
            fuse_main_grad=fuses_weight_grad(call),
            **more,
        )


def head_pass(call: HookCall, options: HeadOptions, asked: Collection[str], topk: int = 0) -> VocabOutput:
    """Run the one pass for the fields of `VocabOutput` that are `asked` for, and no more.

    Every tensor of the result is `[b, s]`, top-k and given tokens `[b, s, k]`.
    """
    context = HookContext.of(call.context)
    groups = context.groups or resolve_groups()
    hidden, gathered = enter_head(call, groups)
    shape = (hidden.shape[1], hidden.shape[0])
    labels = _labels(call, context, options, groups) if "logprobs" in asked else None
    query = VocabQuery(
        labels=as_rows("labels", labels, shape),
        temperature=temperature_of(context, options, shape),
        mask=as_rows("mask", mask_of(call, context, options), shape),
        mask_count=context.mask_count,
        entropy="entropy" in asked,
        topk=topk,
        logit_stats="logit_norm" in asked,
        sum_pi_squared="sum_pi_squared" in asked,
        token_ids=as_rows("token_ids", _token_ids(context), shape, dims=3) if "token_logprobs" in asked else None,
        keep_mask=as_rows("keep_mask", context.keep_mask, shape, dims=3),
    )
    logit_scale = call.logit_scale if options.scale_logits else 1.0
    settings = options.settings(call, groups, gathered, logit_scale=logit_scale)
    return run_pass(hidden, call.weight, query, settings).each(batch_first)


def mask_of(call: HookCall, context: HookContext, options: HeadOptions) -> Tensor | None:
    """`[b, s]`: with `use_loss_mask` one must be there; without it that of the context, and None computes all rows."""
    return selection_mask(call) if options.use_loss_mask else context.mask


def temperature_of(context: HookContext, options: HeadOptions, shape: tuple[int, int]) -> float | Tensor:
    """The temperature of the context, else of the options: a number, or one for each row of `[s, b, h]`."""
    temperature = options.temperature if context.temperature is None else context.temperature
    if isinstance(temperature, Tensor) and temperature.dim() > 0:
        temperature = as_rows("temperature", temperature, shape)
    return temperature


def selection_mask(call: HookCall) -> Tensor:
    """`[b, s]`: the mask of the context, else the model's `loss_mask`; raises if both are missing."""
    mask = HookContext.of(call.context).mask
    mask = call.loss_mask if mask is None else mask
    if mask is None:
        raise MissingContextError("no mask selects the tokens; pass loss_mask= to the model or mask= in the context.")
    return mask


def enter_head(call: HookCall, groups: ProcessGroups) -> tuple[Tensor, bool]:
    """Check that the head can be read, wait for its weight, and gather the hidden states as `gather_hidden` does."""
    check_head(call)
    check_tp_group(groups.tp, call.output_layer, call.config)
    run_layer_hooks(call)
    return gather_hidden(call, groups)


def whole_hidden(call: HookCall, groups: ProcessGroups) -> Tensor:
    """`[s, b, h]`, whose gradient is summed over the tensor-parallel ranks, once for all that is made of it."""
    hidden, gathered = enter_head(call, groups)
    return hidden if gathered else sum_gradient(hidden, groups.tp)


def gather_hidden(call: HookCall, groups: ProcessGroups) -> tuple[Tensor, bool]:
    """`[s, b, h]`, and whether it was gathered from sequence-parallel shares.

    The backward of the gather is a reduce-scatter, which already sums the gradient over tensor-parallel ranks: do not
    reduce it again.
    """
    if not call.config.sequence_parallel or groups.tp is None or groups.tp.size() == 1:
        return call.hidden_states, False
    from megatron.core.tensor_parallel import gather_from_sequence_parallel_region

    hidden: Tensor = gather_from_sequence_parallel_region(
        call.hidden_states, tensor_parallel_output_grad=True, group=groups.tp
    )
    return hidden, True


def _labels(call: HookCall, context: HookContext, options: HeadOptions, groups: ProcessGroups) -> Tensor:
    labels = call.labels if context.labels is None else context.labels
    if options.shift == "aligned":
        if labels is None:
            raise MissingContextError(
                'labels are missing; pass labels= to the model or in the context, or use shift="next_token" to take '
                "them from input_ids."
            )
        return labels
    tokens = call.input_ids if labels is None else labels
    if tokens is None:
        raise MissingContextError(
            'shift="next_token" needs token ids; pass input_ids= or labels= to the model, or labels= in the context.'
        )
    fill = -100 if options.ignore_index is None else options.ignore_index
    return next_token_labels(
        tokens,
        packed_seq_params=call.packed_seq_params,
        lengths=context.lengths,
        cp_group=sequence_group(call.packed_seq_params, groups, call.config),
        fill=fill,
    )


def _token_ids(context: HookContext) -> Tensor:
    if context.token_ids is None:
        raise MissingContextError("token ids are missing; pass token_ids= [b, s, k] in the context.")
    return context.token_ids


def as_rows(name: str, value: Any, shape: tuple[int, int], dims: int = 2) -> Any:
    """`[b, s]` or, with three `dims`, `[b, s, k]`, as the rows of `[s, b, h]`."""
    if value is None:
        return None
    if tuple(value.shape[:2]) != shape or value.dim() != dims:
        raise ValueError(
            f"{name}: expected [batch, sequence{', k' * (dims - 2)}] = {[*shape, *['k'] * (dims - 2)]} to match the "
            f"hidden states, got {list(value.shape)}"
        )
    return value.transpose(0, 1)


def batch_first(value: Tensor) -> Tensor:
    """`[s, b, ...]` to `[b, s, ...]`."""
    return value.transpose(0, 1).contiguous()
