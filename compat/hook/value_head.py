"""A value head at the hook: one number per token from the decoder's output, in place of logits.

The head is a module of its own, `model.value_head`, and the model's output processor. The vocabulary-sized weight is
given up; `output_layer` itself stays, as Megatron builds it for tied embeddings: without a weight. In checkpoints the
head is `output_layer.weight`, where code that assigned `model.output_layer` has it.
"""

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.tensor import DTensor
from torch.nn import Module

from mcore_unpatch.compat.hook.attach import attach
from mcore_unpatch.compat.hook.context import resolve_groups
from mcore_unpatch.compat.hook.errors import HookError
from mcore_unpatch.compat.hook.find import HookPath, find_language_model
from mcore_unpatch.compat.hook.processors import Logits

_NAME = "value_head"
_BRIDGES = ("megatron.bridge", "mbridge")


def add_value_head(model: Module | Sequence[Module], layer: Module | None = None, *, outputs: int = 1) -> None:
    """Make `model` a critic: its output becomes `[b, s, 1]`, one value per token, and its LM head is given up.

    Call it on every pipeline stage before the model is wrapped for data parallelism; only the last stage changes.
    `model` may be the list of chunks of a virtual pipeline, or have a `.language_model`. The head is then
    `model.value_head`, which is also the processor for a schedule plan.

    `layer` is called as Megatron calls an output layer, `layer(hidden, weight=None, runtime_gather_output=None)`, and
    returns `(values, None)`; a layer that was assigned to `model.output_layer` can be passed as it is. Without it the
    head is a `ValueLayer`, with as many `outputs` per token as are asked for: `[b, s, outputs]`.

    Megatron's own checkpoints hold the head. Megatron-Bridge and mbridge know parameters by name, and this one not:
    they leave the head out of what they load and export, so a warning is given where one of them is imported.
    """
    if layer is not None and outputs != 1:
        raise ValueError("outputs: the layer that is given decides how many it has; leave one of the two out.")
    if bridge := next((one for one in _BRIDGES if one in sys.modules), ""):
        warnings.warn(
            f"{bridge} has no mapping for the parameters of a value head, and neither loads nor exports them: "
            "save and load this critic with Megatron's distributed checkpoints (docs/compat-value-head.md).",
            stacklevel=2,
        )
    for chunk in model if isinstance(model, Sequence) else [model]:
        path = find_language_model(chunk)
        if path.model.post_process:
            _give(chunk, path, layer, outputs)


def output_layer_of(model: Any, *default: Any) -> Any:
    """The layer that makes the output of a model: that of its value head, or its own. `default` is as for `getattr`."""
    return getattr(getattr(model, _NAME, model), "output_layer", *default)


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


class ValueHead(Module):
    """`model.value_head`: calls its `output_layer` where Megatron would call the model's."""

    def __init__(self, layer: Module, tp_group: ProcessGroup | None) -> None:
        super().__init__()
        self.output_layer = layer
        self.tp_group = tp_group

    def forward(self, **keywords: Any) -> Tensor:
        """`[b, s, outputs]`, from the keywords of the hook."""
        if keywords.get("labels") is not None:
            raise ValueError("labels: this model has a value head, which returns values and no loss; leave them out.")
        return Logits()(**keywords | {"output_layer": self.output_layer})

    def sharded_state_dict(self, prefix: str = "", sharded_offsets: Any = (), metadata: Any = None) -> dict[str, Any]:
        """The head in Megatron's checkpoint: replicated, and under the name that the model asks for."""
        from megatron.core.transformer.utils import sharded_state_dict_default

        found: dict[str, Any] = sharded_state_dict_default(
            self.output_layer,
            f"{prefix.removesuffix(f'{_NAME}.')}output_layer.",
            sharded_offsets,
            metadata,
            tp_group=self.tp_group,
        )
        return found


def _give(chunk: Module, path: HookPath, layer: Module | None, outputs: int) -> None:
    model: Any = path.model
    _require_ready(path)
    tp_group = resolve_groups(model).tp
    if layer is None:
        like = model.shared_embedding_or_output_weight()
        layer = ValueLayer(model.config, tp_group, like=like, outputs=outputs)
    head = ValueHead(layer, tp_group)
    attach(chunk, head)
    model.add_module(_NAME, head)
    model.register_load_state_dict_pre_hook(_find_in_checkpoint)
    if not model.share_embeddings_and_output_weights:
        _give_up_weight(model.output_layer)


def _require_ready(path: HookPath) -> None:
    model: Any = path.model
    if hasattr(model, _NAME):
        raise HookError(f"this {type(model).__name__} already has a value head; add it once.")
    if model.config.mtp_num_layers:
        raise HookError(
            "MTP layers compute their loss with the LM head, which a critic does not have; build this model with "
            "mtp_num_layers=None."
        )
    if model.share_embeddings_and_output_weights and not model.pre_process:
        raise HookError(
            "with tied embeddings the first pipeline stage sums its gradient with the output layer's, which a critic "
            "does not have; build every stage with share_embeddings_and_output_weights=False."
        )
    if model.config.defer_embedding_wgrad_compute:
        raise HookError("config.defer_embedding_wgrad_compute works on the LM head's weight; set it to False.")
    wrapped = any(isinstance(one, torch.nn.parallel.DistributedDataParallel) for one in path.wrappers)
    if wrapped or any(hasattr(one, "main_grad") or isinstance(one, DTensor) for one in model.parameters()):
        raise HookError(
            "this model is already wrapped for data parallelism, which would not see the new parameters; add the value "
            "head first."
        )


def _give_up_weight(layer: Any) -> None:
    """As Megatron builds the layer without a weight. One row per rank is the smallest size it can describe."""
    for part in layer.modules():
        for name, _ in list(part.named_parameters(recurse=False)):
            part.register_parameter(name, None)
    if getattr(layer, "output_size_per_partition", 0):
        layer.output_size //= layer.output_size_per_partition
        layer.output_size_per_partition = 1


def _find_in_checkpoint(model: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """The head under its name in checkpoints, also in those that held a replaced output layer."""
    for name in model.value_head.state_dict():
        if f"{prefix}{name}" in state:
            state[f"{prefix}{_NAME}.{name}"] = state.pop(f"{prefix}{name}")
