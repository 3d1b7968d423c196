"""Without Megatron's hook: a value head, an output layer that multiplies in fp32, MTP gradients that stop early."""

from ..requirements import require_megatron, say_once

require_megatron(__name__)

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.tensor import DTensor
from torch.nn import Module

from ..fused_head.settings import check_counts
from . import find
from .call import HookError, resolve_groups


def add_value_head(model: Module | Sequence[Module], layer: Module | None = None, *, outputs: int = 1) -> None:
    """Make `model` a critic: its output becomes `[b, s, outputs]`, and its LM head is given up.

    Call it on every pipeline stage before the model is wrapped for data parallelism; only the last stage changes.
    `model` may be a list of chunks. `layer`, else a `ValueLayer`, becomes `model.output_layer`; Megatron calls
    `layer(hidden, weight=None, runtime_gather_output=None)` and takes `(values, None)`.
    """
    say_once(__name__, "a value layer of its own")
    check_counts(outputs=(outputs, 1))
    if layer is not None and outputs != 1:
        raise ValueError("outputs: the layer that is given decides how many it has; leave one of the two out.")
    for chunk in model if isinstance(model, Sequence) else [model]:
        path = find.find_language_model(chunk)
        language: Any = path.model
        if not language.post_process:
            continue
        _require_ready(path)
        head = layer
        if head is None:
            like = language.shared_embedding_or_output_weight()
            head = ValueLayer(language.config, resolve_groups(language).tp, like=like, outputs=outputs)
        language.register_module("output_layer", head)  # raises for what is no module
        language.register_forward_pre_hook(_refuse_labels, with_kwargs=True)
        head.register_forward_pre_hook(partial(_require_entered, type(language)))
        find.VALUE_HEADS.add(head)


class ValueLayer(torch.nn.Linear):
    """`[s, b, h]` to `[s, b, outputs]` in fp32, without bias; replicated over tensor-parallel ranks.

    Under sequence parallelism each rank multiplies its share of the tokens and gathers the values; Megatron then sums
    the weight's gradient over the ranks.
    """

    def __init__(self, config: Any, tp_group: ProcessGroup | None, *, like: Tensor, outputs: int = 1) -> None:
        super().__init__(config.hidden_size, outputs, bias=False, device=like.device, dtype=like.dtype)
        self.tp_group = tp_group
        self.sequence_parallel = config.sequence_parallel
        # Megatron reads both: which gradients to sum over the ranks, and which weights are no hidden matrices (Muon).
        self.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
        self.weight.is_embedding_or_output_parameter = True  # type: ignore[attr-defined]

    def forward(  # type: ignore[override]
        self, hidden: Tensor, weight: Tensor | None = None, runtime_gather_output: bool | None = None
    ) -> tuple[Tensor, None]:
        """The values of every token; the other two arguments are Megatron's, and have no use here."""
        from megatron.core.tensor_parallel import gather_from_sequence_parallel_region

        values = super().forward(hidden).float()
        if self.sequence_parallel:
            values = gather_from_sequence_parallel_region(
                values, tensor_parallel_output_grad=False, group=self.tp_group
            )
        return values, None


def _refuse_labels(model: Module, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    """Megatron would take the cross-entropy over one class: zeros."""
    given = dict(zip(find.argument_names(model), args, strict=False)) | keywords
    if given.get("labels") is not None:
        raise ValueError("labels: this model has a value head, which returns values and no loss; leave them out.")


def _require_entered(kind: type[Module], head: Module, args: tuple[Any, ...]) -> None:
    """Raise for labels of a `forward` that was called as a method, which runs no `_refuse_labels`."""
    running = find.running_forward(kind)
    if running is not None and running.f_locals.get("labels") is not None:
        raise find.bypassed(running.f_locals["self"])


def _require_ready(path: find.HookPath) -> None:
    model: Any = path.model
    wrapped = any(isinstance(wrapper, torch.nn.parallel.DistributedDataParallel) for wrapper in path.wrappers)
    wrapped = wrapped or any(hasattr(one, "main_grad") or isinstance(one, DTensor) for one in model.parameters())
    tied = model.share_embeddings_and_output_weights and not model.pre_process
    obstacles = {
        "a value head is there already; add it once": getattr(model, "output_layer", None) in find.VALUE_HEADS,
        "MTP layers compute their loss with the LM head; build this model with mtp_num_layers=None": (
            model.config.mtp_num_layers
        ),
        "with tied embeddings the first pipeline stage sums its gradient with the output layer's; build every stage "
        "with share_embeddings_and_output_weights=False": tied,
        "config.defer_embedding_wgrad_compute works on the LM head's weight; set it to False": (
            model.config.defer_embedding_wgrad_compute
        ),
        "the model is already wrapped for data parallelism, which would not see the new parameters; add the value head "
        "first": wrapped,
    }
    for obstacle, met in obstacles.items():
        if met:
            raise HookError(f"{type(model).__name__}: {obstacle}.")


def fp32_logits(model: Module | Sequence[Module]) -> find.Handle:
    """Multiply by the LM head in fp32 from now on, whatever the model's dtype; `handle.remove()` undoes it.

    Hidden states and weight are cast in every call of the output layer, those of MTP layers included, and gradients
    come back in the dtype of what was cast. `LogProbs` and its like do not need it: they never round logits.
    """
    handle = find.Handle()
    models = [find.find_language_model(chunk).model for chunk in (model if isinstance(model, Sequence) else [model])]
    last: list[Any] = [model for model in models if model.post_process]
    for layer in last:
        if getattr(layer.output_layer, "gradient_accumulation_fusion", False):
            text = (
                "the output layer adds its weight's gradient to main_grad by itself, which a cast weight has not; set "
            )
            raise HookError(f"{text}model.output_layer.gradient_accumulation_fusion = False first.")
        if layer.config.defer_embedding_wgrad_compute:
            raise HookError("config.defer_embedding_wgrad_compute keeps the LM head's inputs; set it to False.")
    for layer in last:
        handle.on_removal(layer.output_layer.register_forward_pre_hook(_in_fp32, with_kwargs=True).remove)
    return handle


def _in_fp32(layer: Any, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if find.PROBING.get():  # the product is not asked for, and `LogProbs` and its like never round it
        return args, given
    hidden, *rest = args or (given.pop("input_"),)
    weight, *rest = rest or [given.get("weight")]
    weight = layer.weight if weight is None else weight
    return (hidden.float(), weight.float(), *rest), {name: value for name, value in given.items() if name != "weight"}


def detach_mtp_inputs(layer: Any, *, embeddings: bool = True, hidden_states: bool = True) -> find.Handle:
    """Keep the loss of an MTP layer out of the token embeddings, and out of what gave it its hidden states.

    That is the decoder for the first of `model.mtp.layers`, and the layer before for the others. `handle.remove()`
    undoes it.
    """
    handle = find.Handle()
    # The layer uses both inputs in their norms alone: in a plain forward, under recompute and in a schedule plan alike.
    for norm in [layer.enorm] * embeddings + [layer.hnorm] * hidden_states:
        handle.on_removal(norm.register_forward_pre_hook(_detach, prepend=True).remove)
    return handle


def _detach(norm: Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return (args[0].detach(), *args[1:])
