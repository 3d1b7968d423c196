"""The output layer, of which only the weight is read: it must do no more than multiply by it, and its own hooks run.

A layer that does more is refused, and so is one whose hooks change what goes in or out.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from threading import get_ident
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn import Module

from mcore_unpatch.compat.fused_head.weight_grad import into_main_grad
from mcore_unpatch.compat.hook.call import HookCall
from mcore_unpatch.compat.hook.errors import UnsupportedHeadError

# The hooks on a layer that were seen to hand gradients through.
_transparent: WeakKeyDictionary[Module, tuple[Any, ...]] = WeakKeyDictionary()
VALUE_HEADS: WeakSet[Module] = WeakSet()  # layers that `add_value_head` put there


def check_head(call: HookCall) -> None:
    """Raise unless the layer is a plain column-parallel product whose weight is present on this rank."""
    refuse_critic(call.output_layer, call.output_weight)
    if "forward" in vars(call.output_layer):
        refuse_head(call.output_layer, "its forward was replaced on the instance", "remove that patch")
    for reason in _obstacles(call):
        refuse_head(call.output_layer, reason)


def refuse_critic(layer: Any, weight: Tensor | None = None, remedy: str = "call it without the processor") -> None:
    """Raise for a value head: values have no distribution, however many a layer of one's own gives per token."""
    weight = getattr(layer, "weight", None) if weight is None else weight
    if layer in VALUE_HEADS or (isinstance(weight, Tensor) and weight.dim() == 2 and len(weight) == 1):
        raise UnsupportedHeadError(
            f"this model is a critic: its output_layer ({type(layer).__qualname__}) gives values and no logits, so "
            f"there are no log-probs; {remedy}, and it returns the values."
        )


def refuse_head(layer: Module, reason: str, remedy: str = "use the Logits processor, which calls the layer") -> None:
    """Raise for this layer, with the reason and the way out."""
    kind = f"{type(layer).__module__}.{type(layer).__qualname__}"
    raise UnsupportedHeadError(f"output_layer ({kind}): {reason}; {remedy}.")


def fuses_weight_grad(call: HookCall) -> bool:
    """Whether the layer adds its weight's gradient to `main_grad`; Megatron then ignores the weight's `.grad`."""
    return bool(getattr(call.output_layer, "gradient_accumulation_fusion", call.config.gradient_accumulation_fusion))


def lent_weight(call: HookCall) -> Tensor:
    """The weight for code that multiplies by it directly: its gradient goes where the layer's own would."""
    return into_main_grad(call.weight) if fuses_weight_grad(call) else call.weight


def run_layer_hooks(call: HookCall) -> None:
    """Run the layer's own hooks on one row: in them Megatron waits for weights that are still being gathered.

    They run when the layer is called, which does not happen otherwise here. A hook that changes the layer's input or
    output would be lost, so it raises; one that returns the same memory does not.
    """
    layer = call.output_layer
    if not layer._forward_pre_hooks and not layer._forward_hooks:
        return
    row = call.hidden_states[:1].detach()
    before = _state(row)
    seen: dict[str, Any] = {}
    me = get_ident()  # another thread may call the layer too

    def look_in(_: Module, args: Any, kwargs: dict[str, Any] | None = None) -> None:
        if get_ident() == me and kwargs is not None:
            seen["given"], seen["weight"] = _state(args[0]), [*args[1:2], kwargs.get("weight")][0]

    def look_out(_: Module, args: Any, output: Any) -> None:
        if get_ident() == me:
            seen["made"], seen["state"] = output[0], _state(output[0])

    hooks = tuple(layer._forward_hooks.values())
    handles = (
        layer.register_forward_pre_hook(look_in, with_kwargs=True),
        layer.register_forward_hook(look_out, prepend=True),
    )
    try:
        with torch.no_grad():
            result = layer(row, weight=call.output_weight)[0]
    finally:
        for handle in handles:
            handle.remove()
    if seen["given"] != before:
        refuse_head(layer, "a forward pre-hook on it changes its input")
    if seen["weight"] is not None and seen["weight"] is not call.weight:
        refuse_head(layer, "a forward pre-hook on it changes its weight")
    if _state(result) != seen["state"]:
        refuse_head(layer, "a forward hook on it changes its output")
    if result is not seen["made"] and torch.is_grad_enabled() and _transparent.get(layer) != hooks:
        _require_transparent(call, row)
        _transparent[layer] = hooks


def _obstacles(call: HookCall) -> Iterator[str]:
    from megatron.core.tensor_parallel import ColumnParallelLinear

    layer = call.output_layer
    weight = getattr(layer, "weight", None) if call.output_weight is None else call.output_weight
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
            "it is not a ColumnParallelLinear of Megatron (an adapter around the head, or a head of "
            "Transformer Engine, which multiplies in fp8?)"
        )
    rows = getattr(layer, "output_size_per_partition", len(weight))
    if len(weight) != rows or getattr(layer, "gtp_remat_size", 1) > 1 or getattr(weight, "gtp_remat_size", 1) > 1:
        yield f"its weight is sharded further: only {len(weight)} of its {rows} rows are on this rank"
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
    names, own = function.__globals__, _own_folders()
    for called in [function, *[names.get(name) for name in function.__code__.co_names]]:
        if isinstance(called, FunctionType) and not called.__code__.co_filename.startswith(own):
            code = called.__code__
            return f"{code.co_filename}:{code.co_firstlineno} ({code.co_qualname})"
    return None


@cache
def _own_folders() -> tuple[str, ...]:
    import megatron.core

    return tuple(f"{Path(package.__path__[0])}/" for package in (megatron.core, torch))


def _require_transparent(call: HookCall, row: Tensor) -> None:
    """Whether hooks leave the gradient alone, as well as the value; checked once for the hooks of a layer."""
    seen: dict[str, Tensor] = {}
    me = get_ident()

    def stand_in(_: Module, args: Any, output: Any) -> Any:
        if get_ident() != me:
            return None
        seen["leaf"] = output[0].detach().requires_grad_()
        return seen["leaf"].clone(), *output[1:]

    handle = call.output_layer.register_forward_hook(stand_in, prepend=True)
    try:
        with torch.enable_grad():
            result = call.output_layer(row, weight=call.output_weight)[0]
    finally:
        handle.remove()
    probe = torch.linspace(-1, 1, result.numel(), device=result.device).to(result.dtype).view_as(result)
    (found,) = torch.autograd.grad(result, seen["leaf"], probe, allow_unused=True)
    if found is None or not torch.equal(found, probe):
        refuse_head(call.output_layer, "a forward hook on it changes the gradient of its output")


def _state(tensor: Tensor) -> tuple[Any, ...]:
    """A tensor's memory, its layout, and how often it was written to (not counted in inference mode)."""
    version = 0 if tensor.is_inference() else tensor._version
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, version
