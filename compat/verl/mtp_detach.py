"""Keeps the MTP loss out of the encoder: no gradient to the decoder or the embedding.

An MTP layer normalises its two inputs, the token embeddings and the hidden states of the previous depth, and uses them
nowhere else. A forward pre-hook on each of the two norms detaches its input, in a plain forward, under recompute and in
a schedule plan alike.
"""

import warnings
from typing import Any

from torch.nn import Module

from mcore_unpatch.compat.hook.errors import HookError
from mcore_unpatch.compat.hook.provide import Handle
from mcore_unpatch.compat.verl.mtp_call import mtp_layers


def detach_encoder(model: Any, *, updates_lm_head: bool, every_depth: bool, use_config: bool | None) -> Handle:
    """Detach every embedding, and the hidden states before the first depth or before every depth.

    Uses `config.mtp_detach_heads` if that has the same effect, or if `use_config` asks for it.

    The field (megatron-core 0.19) detaches once, before the first depth, and also keeps the MTP loss from the LM head.
    """
    same = _has_field(model.config) and model.config.mtp_num_layers == 1 and not updates_lm_head
    if use_config is None:
        use_config = same
    if not use_config:
        return _detach_with_hooks(model, every_depth)
    if not _has_field(model.config):
        raise HookError(
            "this megatron-core has no config.mtp_detach_heads, which was added in 0.19; upgrade, or leave out "
            "use_mtp_detach_heads."
        )
    if not same:
        warnings.warn(_difference(model.config, updates_lm_head), UserWarning, stacklevel=4)
    return _detach_with_config(model.config)


def _detach_with_hooks(model: Any, every_depth: bool) -> Handle:
    handle, layers = Handle(), mtp_layers(model)
    if getattr(model.config, "mtp_use_repeated_layer", False) and not every_depth:
        raise HookError(
            "config.mtp_use_repeated_layer: all depths share one MTP layer, so it cannot be detached before the first "
            "depth only; pass every_depth=True."
        )
    cut = [*(layer.enorm for layer in layers), *(layer.hnorm for layer in (layers if every_depth else layers[:1]))]
    for norm in cut:
        handle.on_removal(norm.register_forward_pre_hook(_detach, prepend=True).remove)
    return handle


def _detach(norm: Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return (args[0].detach(), *args[1:])


def _detach_with_config(config: Any) -> Handle:
    handle, before = Handle(), config.mtp_detach_heads
    config.mtp_detach_heads = True

    def undo() -> None:
        config.mtp_detach_heads = before

    handle.on_removal(undo)
    return handle


def _has_field(config: Any) -> bool:
    return hasattr(config, "mtp_detach_heads")


def _difference(config: Any, updates_lm_head: bool) -> str:
    parts = []
    if config.mtp_num_layers != 1:
        parts.append(
            f"it detaches only before the first of {config.mtp_num_layers} depths, so each depth still trains "
            "those before it"
        )
    if updates_lm_head:
        parts.append("it keeps the MTP loss from the LM head, although mtp_updates_lm_head=True")
    return f"config.mtp_detach_heads differs from veRL's encoder detach: {'; '.join(parts)}."
