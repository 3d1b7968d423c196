"""veRL's `mtp_patch` on the hook: train MTP together with a policy that needs logits."""

from ..requirements import require_hook, say_once

require_hook(__name__, unpatched=True)

import logging
import warnings
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from megatron.core import tensor_parallel
from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer
from torch import Tensor
from torch.nn import Module

from ..hook.call import HookError
from ..hook.changed_heads import detach_mtp_inputs
from ..hook.find import Handle, refuse_patched
from . import installed

logger = logging.getLogger(__name__)
_detached: WeakKeyDictionary[Module, Handle] = WeakKeyDictionary()
_recomputed: WeakKeyDictionary[Module, Handle] = WeakKeyDictionary()


def patch_postprocess(model: Module, *, mtp_updates_lm_head: bool = True, numbers: installed.Numbers = "verl") -> None:
    """Return logits from a forward with labels, with Megatron's own MTP loss; without labels run no MTP.

    `mtp_updates_lm_head`: whether the MTP loss may change the LM head, as in veRL's releases on megatron-core 0.17 and
    later. `numbers="megatron"` scales the logits under MuP, as Megatron does and veRL does not.
    """
    say_once(__name__)
    path = installed.path_in(model)
    if path is None:
        return
    installed.warn_where_kept("patch_postprocess", numbers, path.model.config, logits_alone=True)
    state = installed.install(path)
    state.logits = numbers
    state.let_mtp_update_head(mtp_updates_lm_head)
    if mtp_updates_lm_head and getattr(path.model.config, "mtp_detach_heads", False):
        text = "config.mtp_detach_heads keeps the MTP loss from the LM head, so mtp_updates_lm_head=True has no effect."
        warnings.warn(text, UserWarning, stacklevel=2)


def unpatch_postprocess(model: Module) -> None:
    """Undo `patch_postprocess`; does nothing if it was not called."""
    path = installed.path_in(model)
    state = None if path is None else installed.state_of(path)
    if state is not None:
        state.logits = None
        state.let_mtp_update_head(True)
        state.release()


def patch_mtp_layer_get_embeddings(model: Module, *, every_depth: bool = False) -> bool:
    """Keep the MTP loss out of the decoder and the embedding; returns whether anything was changed.

    `every_depth`: also keep the loss of each depth out of the depths before it, as veRL 0.7 did.
    """
    say_once(__name__, "PyTorch's hooks")
    inner, layers = _mtp_of(model)
    if not layers or inner in _detached:
        logger.info("no MTP layers, or their encoder is already detached; nothing was changed")
        return False
    handle = _detached[inner] = Handle()
    shared = inner.config.mtp_use_repeated_layer and inner.config.mtp_num_layers > 1 and not every_depth
    if shared:
        _detach_first_depth(handle, inner.mtp, layers[0])
    for depth, layer in enumerate(layers):
        handle.on_removal(detach_mtp_inputs(layer, hidden_states=every_depth or (depth == 0 and not shared)).remove)
    return True


def _detach_first_depth(handle: Handle, mtp: Any, layer: Any) -> None:
    """Detach what the decoder gives a layer that all depths share; in its call, as its norm may be recomputed."""
    from_decoder: list[bool] = []

    def begin(_: Module, args: tuple[Any, ...]) -> None:
        from_decoder[:] = [True]

    def detach(_: Module, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if from_decoder:
            from_decoder.clear()
            given = {**given, "hidden_states": given["hidden_states"].detach().requires_grad_()}
        return args, given

    handle.on_removal(mtp.register_forward_pre_hook(begin).remove)
    handle.on_removal(layer.register_forward_pre_hook(detach, with_kwargs=True).remove)


def unpatch_mtp_layer_get_embeddings(model: Module) -> bool:
    """Undo `patch_mtp_layer_get_embeddings`; returns whether there was anything to undo."""
    return _undo(model, _detached)


def patch_mtp_layer_checkpointed_forward(model: Module) -> bool:
    """Let MTP layers of 0.18 recompute, by layers that share their parameters; returns whether anything was changed."""
    say_once(__name__, "layers that can recompute")
    inner, layers = _mtp_of(model)
    if inner in _recomputed or all(map(installed.can_recompute, layers)):
        logger.info("no MTP layers that cannot recompute")
        return False
    for layer in layers:
        if type(layer) is not MultiTokenPredictionLayer:  # the twin would be without what is its own
            raise HookError(f"{type(layer).__name__} is no layer of Megatron's own; upgrade megatron-core to 0.19.")
    handle = _recomputed[inner] = Handle()
    for number, layer in enumerate(layers):
        twin = RecomputedMtpLayer.__new__(RecomputedMtpLayer)
        object.__setattr__(twin, "__dict__", vars(layer))  # parameters, names and state are shared
        inner.mtp.layers[number] = twin
        handle.on_removal(partial(inner.mtp.layers.__setitem__, number, layer))
    return True


def unpatch_mtp_layer_checkpointed_forward(model: Module) -> bool:
    """Undo `patch_mtp_layer_checkpointed_forward`; returns whether there was anything to undo."""
    return _undo(model, _recomputed)


def _mtp_of(model: Module) -> tuple[Any, list[Any]]:
    """The language model and its MTP layers, which must not be patched."""
    path = installed.path_in(model, stacklevel=4)
    layers = [] if path is None else installed.mtp_layers(path.model)
    for layer in layers:
        refuse_patched(__name__, layer, ("_get_embeddings", "_checkpointed_forward"))
    return path and path.model, layers


def _undo(model: Module, handles: WeakKeyDictionary[Module, Handle]) -> bool:
    path = installed.path_in(model, stacklevel=4)
    handle = None if path is None else handles.pop(path.model, None)
    if handle is not None:
        handle.remove()
    return handle is not None


class RecomputedMtpLayer(MultiTokenPredictionLayer):  # type: ignore[misc]
    """An MTP layer whose `_checkpointed_forward` takes the padding mask that `forward` passes."""

    def _checkpointed_forward(
        self, hidden_states: Tensor, decoder_input: Tensor, padding_mask: Tensor | None = None, **rest: Any
    ) -> Tensor:
        if padding_mask is None:
            result: Tensor = super()._checkpointed_forward(hidden_states, decoder_input, **rest)
            return result
        if self.config.fp8 or self.config.fp4:
            text = "this megatron-core cannot recompute an MTP layer with a padding mask in fp8 or fp4"
            raise HookError(f"{text}; upgrade to 0.19.")

        def run(hidden_states: Tensor, decoder_input: Tensor) -> Tensor:
            result: Tensor = self._proj_and_transformer_layer(
                hidden_states=hidden_states, decoder_input=decoder_input, padding_mask=padding_mask, **rest
            )
            return result

        if self.config.recompute_method == "block":  # Megatron does not recompute MTP layers in blocks
            return run(hidden_states, decoder_input)
        kept = self.config.distribute_saved_activations
        recomputed: Tensor = tensor_parallel.checkpoint(run, kept, hidden_states, decoder_input)
        return recomputed
