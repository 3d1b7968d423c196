"""Gradients of an MTP layer that stop at its inputs, by hooks of PyTorch.

An MTP layer normalises its two inputs, the token embeddings and the hidden states of the previous depth, and uses them
nowhere else. A forward pre-hook on each of the two norms detaches its input, in a plain forward, under recompute and in
a schedule plan alike.
"""

from typing import Any

from torch.nn import Module

from mcore_unpatch.compat.hook.state import Handle


def detach_mtp_inputs(layer: Any, *, embeddings: bool = True, hidden_states: bool = True) -> Handle:
    """Keep the loss of an MTP layer out of the token embeddings, and out of what gave it its hidden states.

    That is the decoder for the first of `model.mtp.layers`, and the layer before for the others. Values stay; so does
    the gradient of the output weight. `handle.remove()` undoes it.
    """
    handle = Handle()
    for norm in [layer.enorm] * embeddings + [layer.hnorm] * hidden_states:
        handle.on_removal(norm.register_forward_pre_hook(_detach, prepend=True).remove)
    return handle


def _detach(norm: Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return (args[0].detach(), *args[1:])
