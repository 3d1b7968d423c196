"""veRL's `mtp_patch` on the hook: train MTP together with a policy that needs logits.

After `patch_postprocess` a forward with `labels` returns logits, and Megatron computes, applies and logs the MTP loss;
a forward without labels runs no MTP. A caller's own `output_processor` still runs.
"""

import logging
import warnings
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from torch.nn import Module

from mcore_unpatch.compat.hook.attach import Handle
from mcore_unpatch.compat.hook.find import refuse_patched
from mcore_unpatch.compat.verl.fused_processor import Numbers, check_numbers, warn_where_kept
from mcore_unpatch.compat.verl.installed import install, installed, language_model_in, release
from mcore_unpatch.compat.verl.mtp_call import can_recompute, detach_encoder, mtp_layers, recomputed_twin

logger = logging.getLogger(__name__)
_detached: WeakKeyDictionary[Module, Handle] = WeakKeyDictionary()
_recomputed: WeakKeyDictionary[Module, Handle] = WeakKeyDictionary()


def patch_postprocess(model: Module, *, mtp_updates_lm_head: bool = True, numbers: Numbers = "verl") -> None:
    """Return logits from a forward with labels, with Megatron's own MTP loss; a second call only changes the options.

    `mtp_updates_lm_head`: whether the MTP loss may change the LM head, as it did in every veRL release that ran on a
    megatron-core with `process_mtp_loss` (0.17 and later). `numbers="megatron"` scales the logits under MuP, as
    Megatron itself does and veRL does not.
    """
    check_numbers(numbers)
    inner = language_model_in(model)
    if inner is None:
        return
    state = install(model)
    state.logits = numbers
    warn_where_kept("patch_postprocess", numbers, inner.config, logits_alone=True)
    state.mtp.updates_lm_head = mtp_updates_lm_head
    if mtp_updates_lm_head and getattr(inner.config, "mtp_detach_heads", False):
        warnings.warn(
            "config.mtp_detach_heads keeps the MTP loss from the LM head, so mtp_updates_lm_head=True has no effect.",
            UserWarning,
            stacklevel=2,
        )


def unpatch_postprocess(model: Module) -> None:
    """Undo `patch_postprocess`; does nothing if it was not called."""
    if language_model_in(model) is None:
        return
    state = installed(model)
    if state is not None:
        state.logits = None
        state.mtp.updates_lm_head = True
        release(model)


def patch_mtp_layer_get_embeddings(
    model: Module, *, every_depth: bool = False, use_mtp_detach_heads: bool | None = None
) -> bool:
    """Keep the MTP loss out of the decoder and the embedding; returns whether anything was changed.

    `every_depth`: also keep the loss of each depth out of the depths before it, as veRL 0.7 did; 0.8 and later do not.
    With one MTP layer both are the same.
    `use_mtp_detach_heads`: None uses Megatron's own field if it has the same effect (0.19, one MTP layer, and an MTP
    loss that may not update the LM head); True always uses it, with a warning if it differs; False never does.
    """
    inner = language_model_in(model)
    layers = mtp_layers(inner)
    if inner is None or not layers or inner in _detached:
        logger.info("no MTP layers, or their encoder is already detached; nothing was changed")
        return False
    _refuse_patched_layers(layers)
    state = installed(model)
    updates_lm_head = state is None or state.mtp.updates_lm_head
    _detached[inner] = detach_encoder(
        inner, updates_lm_head=updates_lm_head, every_depth=every_depth, use_config=use_mtp_detach_heads
    )
    return True


def unpatch_mtp_layer_get_embeddings(model: Module) -> bool:
    """Undo `patch_mtp_layer_get_embeddings`; returns whether there was anything to undo."""
    return _undo(model, _detached)


def patch_mtp_layer_checkpointed_forward(model: Module) -> bool:
    """Let MTP layers recompute (`recompute_granularity="full"`); returns whether anything was changed (not on 0.19).

    On megatron-core 0.18 each MTP layer is replaced by one that shares its parameters and can recompute.
    """
    inner = language_model_in(model)
    layers = mtp_layers(inner)
    if inner is None or inner in _recomputed or all(map(can_recompute, layers)):
        logger.info("no MTP layers that cannot recompute")
        return False
    _refuse_patched_layers(layers)
    handle = _recomputed[inner] = Handle()
    modules: Any = inner.mtp.layers
    for number, layer in enumerate(layers):
        modules[number] = recomputed_twin(layer)
        handle.on_removal(partial(modules.__setitem__, number, layer))
    return True


def unpatch_mtp_layer_checkpointed_forward(model: Module) -> bool:
    """Undo `patch_mtp_layer_checkpointed_forward`; returns whether there was anything to undo."""
    return _undo(model, _recomputed)


def _refuse_patched_layers(layers: list[Any]) -> None:
    for layer in layers:
        refuse_patched(__name__, layer, ("_get_embeddings", "_checkpointed_forward"))


def _undo(model: Module, handles: WeakKeyDictionary[Module, Handle]) -> bool:
    inner = language_model_in(model, stacklevel=4)
    handle = None if inner is None else handles.pop(inner, None)
    if handle is None:
        return False
    handle.remove()
    return True
