"""Runs the output layer's own hooks, which a call of the layer runs, although only its weight is read."""

from threading import get_ident
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import Module

from mcore_unpatch.compat.hook.call import HookCall
from mcore_unpatch.compat.hook.output_layer import refuse_head

# The hooks on a layer that were seen to hand gradients through.
_transparent: WeakKeyDictionary[Module, tuple[Any, ...]] = WeakKeyDictionary()


def wake(call: HookCall) -> None:
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
