"""What the shims change in MTP layers: their loss is kept out of the encoder, and on 0.18 they learn to recompute.

The layers of megatron-core 0.18 drop the padding mask and cannot recompute. One is replaced by a layer of a subclass
that shares everything with it: parameters, hooks, names. No method changes.
"""

import inspect
import warnings
from typing import Any

from megatron.core import tensor_parallel
from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer
from torch import Tensor

from mcore_unpatch.compat.hook.attach import Handle
from mcore_unpatch.compat.hook.errors import HookError
from mcore_unpatch.compat.mtp import detach_mtp_inputs


def mtp_layers(model: Any) -> list[Any]:
    """The MTP layers of this stage."""
    return list(getattr(getattr(model, "mtp", None), "layers", ()))


def can_recompute(layer: Any) -> bool:
    """Whether this MTP layer can recompute: that of 0.18 passes a padding mask to a method that takes none."""
    return "padding_mask" in inspect.signature(type(layer)._checkpointed_forward).parameters


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
    for depth, layer in enumerate(layers):
        handle.on_removal(detach_mtp_inputs(layer, hidden_states=every_depth or depth == 0).remove)
    return handle


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


class RecomputedMtpLayer(MultiTokenPredictionLayer):  # type: ignore[misc]
    """An MTP layer whose `_checkpointed_forward` takes the padding mask that `forward` passes."""

    def _checkpointed_forward(
        self, hidden_states: Tensor, decoder_input: Tensor, padding_mask: Tensor | None = None, **rest: Any
    ) -> Tensor:
        if padding_mask is None:
            result: Tensor = super()._checkpointed_forward(hidden_states, decoder_input, **rest)
            return result
        if self.config.fp8 or self.config.fp4:
            raise HookError(
                "this megatron-core cannot recompute an MTP layer with a padding mask in fp8 or fp4; upgrade to 0.19."
            )

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


def recomputed_twin(layer: MultiTokenPredictionLayer) -> MultiTokenPredictionLayer:
    """The same layer as an instance of the subclass: the two share all state."""
    kind: type[Any] = RecomputedMtpLayer
    if type(layer) is not MultiTokenPredictionLayer:
        kind = type(f"Recomputed{type(layer).__name__}", (RecomputedMtpLayer, type(layer)), {})
    twin = object.__new__(kind)
    object.__setattr__(twin, "__dict__", vars(layer))
    return twin
