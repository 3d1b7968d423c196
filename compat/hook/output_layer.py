"""Checks that the output layer does nothing but multiply by its weight, and refuses any other layer."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FunctionType

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn import Module

from mcore_unpatch.compat.fused_head.weight_grad import into_main_grad
from mcore_unpatch.compat.hook.call import HookCall
from mcore_unpatch.compat.hook.errors import UnsupportedHeadError


def check_head(call: HookCall) -> None:
    """Raise unless the layer is a plain column-parallel product whose weight is present on this rank."""
    for reason in _obstacles(call):
        refuse_head(call.output_layer, reason)


def refuse_head(layer: Module, reason: str) -> None:
    """Raise for this layer, with the reason and the way out."""
    kind = f"{type(layer).__module__}.{type(layer).__qualname__}"
    raise UnsupportedHeadError(f"output_layer ({kind}): {reason}; use the Logits processor, which calls the layer.")


def fuses_weight_grad(call: HookCall) -> bool:
    """Whether the layer adds its weight's gradient to `main_grad`; Megatron then ignores the weight's `.grad`."""
    return bool(getattr(call.output_layer, "gradient_accumulation_fusion", call.config.gradient_accumulation_fusion))


def lent_weight(call: HookCall) -> Tensor:
    """The weight for code that multiplies by it directly: its gradient goes where the layer's own would."""
    return into_main_grad(call.weight) if fuses_weight_grad(call) else call.weight


def _obstacles(call: HookCall) -> Iterator[str]:
    from megatron.core.tensor_parallel import ColumnParallelLinear

    layer = call.output_layer
    weight = getattr(layer, "weight", None) if call.output_weight is None else call.output_weight
    if "forward" in vars(layer):
        yield "its forward was replaced on the instance"
    if isinstance(weight, DTensor):
        yield "its weight is sharded between calls (FSDP); leave the output layer out of the sharding"
    if not isinstance(weight, Tensor) or weight.dim() != 2:
        yield f"it has no 2-D weight ({list(weight.shape) if isinstance(weight, Tensor) else None})"
        return
    if getattr(layer, "bias", None) is not None:
        yield "it has a bias"
    if call.config.defer_embedding_wgrad_compute:
        yield "config.defer_embedding_wgrad_compute computes its weight gradient from inputs it would never see"
    if not isinstance(layer, ColumnParallelLinear):
        yield (
            "it is not a ColumnParallelLinear of Megatron (a value head, an adapter around the head, or a head of "
            "Transformer Engine, which multiplies in fp8?)"
        )
    rows = getattr(layer, "output_size_per_partition", len(weight))
    if len(weight) != rows or max(getattr(owner, "gtp_remat_size", 1) for owner in (layer, weight)) > 1:
        yield f"its weight is sharded further: only {len(weight)} of its {rows} rows are on this rank"
    if getattr(layer, "output_size", len(weight)) == 1:
        yield "it is a value head: a single output has no distribution"
    if layer._backward_hooks or layer._backward_pre_hooks:
        yield "a backward hook on it would never run, because the layer is not called"
    for name in ("forward", "_forward_impl"):
        if (foreign := _foreign(layer, name)) is not None:
            yield f"its {name} is defined in {foreign} and may do more than the product (soft-capped logits?)"


def _foreign(layer: Module, name: str) -> str | None:
    """Where this method, or a function it calls, is defined, if that is not in Megatron.

    By the file of the code object: names are copied by `functools.wraps`.
    """
    method = vars(layer).get(name, getattr(type(layer), name, None))
    function = getattr(method, "__func__", method)
    if function is None:
        return None
    if not isinstance(function, FunctionType):
        return repr(function)
    called = (function.__globals__.get(name) for name in function.__code__.co_names)
    for one in (function, *(f for f in called if isinstance(f, FunctionType))):
        file = one.__code__.co_filename
        if not file.startswith(_own_folders()):
            return f"{file}:{one.__code__.co_firstlineno} ({one.__code__.co_qualname})"
    return None


@cache
def _own_folders() -> tuple[str, ...]:
    import megatron.core

    return tuple(f"{Path(package.__path__[0])}/" for package in (megatron.core, torch))
