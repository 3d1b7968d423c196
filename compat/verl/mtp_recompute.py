"""MTP layers that can recompute on megatron-core 0.18, whose own raise because they drop the padding mask.

A layer is replaced by one of a subclass that shares everything with it: parameters, hooks, names. No method changes.
"""

from typing import Any

from megatron.core import tensor_parallel
from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer
from torch import Tensor

from mcore_unpatch.compat.hook.errors import HookError


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
