"""Whether a product with the output layer's weight is all that the layer does. Where it is not, nobody may guess."""

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn import Module

from mcore_unpatch.compat.hook.call import HookCall
from mcore_unpatch.compat.hook.errors import UnsupportedHeadError


def check_head(call: HookCall) -> None:
    """Raise if the layer is not a plain column-parallel product with a weight that is all here."""
    layer = call.output_layer
    weight = getattr(layer, "weight", None) if call.output_weight is None else call.output_weight
    home = type(layer).forward.__module__
    if "forward" in vars(layer):
        _refuse(layer, "its forward was replaced on the instance")
    if isinstance(weight, DTensor):
        _refuse(layer, "its weight is sharded between calls (FSDP); leave the output layer out of the sharding")
    if not isinstance(weight, Tensor) or weight.dim() != 2:
        _refuse(layer, f"it has no 2-D weight ({list(weight.shape) if isinstance(weight, Tensor) else None})")
    if getattr(layer, "bias", None) is not None:
        _refuse(layer, "it has a bias")
    if call.config.defer_embedding_wgrad_compute:
        _refuse(
            layer, "config.defer_embedding_wgrad_compute keeps its weight gradient for a step that would find nothing"
        )
    if not _is_column_parallel(layer):
        _refuse(
            layer, "it is no column-parallel linear layer of Megatron (a value head, or an adapter around the head?)"
        )
    if not home.startswith("megatron.core."):
        _refuse(layer, f"its forward comes from {home}, and may do more than the product (soft-capped logits?)")


def wake(call: HookCall) -> None:
    """Let the layer's own hooks run, on one row: with them Megatron waits for weights that are still being gathered.

    They run when the layer is called, and nobody calls it here. A hook that changes what the layer is given or what it
    gives would be lost, and is refused.
    """
    layer = call.output_layer
    if not layer._forward_pre_hooks and not layer._forward_hooks:
        return
    seen: dict[str, tuple[Tensor, int]] = {}
    row = call.hidden_states[:1].detach()
    before = _state(row)
    handles = (
        layer.register_forward_pre_hook(lambda _, args: seen.update(given=_state(args[0]))),
        layer.register_forward_hook(lambda _, args, output: seen.update(made=_state(output[0])), prepend=True),
    )
    try:
        with torch.no_grad():
            result = layer(row, weight=call.output_weight)[0]
    finally:
        for handle in handles:
            handle.remove()
    if _differ(seen["given"], before):
        _refuse(layer, "a forward pre-hook on it changes its input")
    if _differ(seen["made"], _state(result)):
        _refuse(layer, "a forward hook on it changes its output")


def _state(tensor: Tensor) -> tuple[Tensor, int]:
    """A tensor, and how often it was written to; those of inference mode do not count that."""
    return tensor, 0 if tensor.is_inference() else tensor._version


def _differ(left: tuple[Tensor, int], right: tuple[Tensor, int]) -> bool:
    return left[0] is not right[0] or left[1] != right[1]


def _refuse(layer: Module, reason: str) -> None:
    kind = f"{type(layer).__module__}.{type(layer).__qualname__}"
    raise UnsupportedHeadError(f"output_layer ({kind}): {reason}. Use the Logits processor, which calls the layer")


def _is_column_parallel(output_layer: Any) -> bool:
    from megatron.core.tensor_parallel import ColumnParallelLinear

    if isinstance(output_layer, ColumnParallelLinear):
        return True
    return type(output_layer).__name__ == "TELMHeadColumnParallelLinear"
