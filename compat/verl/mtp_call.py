"""Multi-token prediction (MTP) in a forward, as veRL means it, through fields set for that call only.

With labels, Megatron runs the MTP layers and adds and logs their loss. Without labels there is no MTP here, whereas
Megatron 0.19 would make labels from `input_ids` and add a loss.
"""

import inspect
import warnings
from copy import copy
from typing import Any

from megatron.core import tensor_parallel
from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer
from torch import Tensor
from torch.nn import Module
from torch.utils.hooks import RemovableHandle

from mcore_unpatch.compat.hook.attach import Handle
from mcore_unpatch.compat.hook.call import is_inference
from mcore_unpatch.compat.hook.errors import HookError
from mcore_unpatch.compat.hook.find import argument_names
from mcore_unpatch.compat.hook.one_call import OneCallFields
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


# veRL 0.9 leaves it on the packed parameters where gradients are divided by routed instead of loss tokens.
NORMALIZATION_FACTOR = "_verl_mtp_loss_normalization_factor"


class MtpCalls:
    """The hooks on one model; `updates_lm_head` says whether the MTP loss may change the LM head."""

    def __init__(self, model: Any, owner: Any) -> None:
        self.model, self.owner = model, owner
        self.names = argument_names(model)
        self.fields = OneCallFields()
        self.mtp_products_left = 0
        self._head: RemovableHandle | None = None
        # Before everybody else's, so that they too see keywords only.
        before = model.register_forward_pre_hook(self._begin, with_kwargs=True, prepend=True)
        self.handles = [before, model.register_forward_hook(self._end, always_call=True)]

    @property
    def updates_lm_head(self) -> bool:
        """Whether the MTP loss has a gradient for the LM head."""
        return self._head is None

    @updates_lm_head.setter
    def updates_lm_head(self, value: bool) -> None:
        if value and self._head is not None:
            self._head.remove()
            self._head = None
        layer = getattr(self.model, "output_layer", None)
        if not value and self._head is None and layer is not None:
            self._head = layer.register_forward_pre_hook(self._detach_head, with_kwargs=True)

    def remove(self) -> None:
        """Remove the hooks."""
        self.updates_lm_head = True
        for handle in self.handles:
            handle.remove()

    def _begin(self, model: Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        if kwargs is None:  # another thread, while this hook is being registered or removed
            return None
        kwargs = dict(zip(self.names, args, strict=False)) | kwargs
        self.fields.begin()
        if self.model.config.mtp_num_layers and not is_inference():
            if kwargs.get("labels") is None or self.owner.leaves_out_mtp(kwargs):
                self.fields.leave_out_mtp(self.model, kwargs, self.names)
            else:
                self._with_mtp(kwargs.get("packed_seq_params"))
        return (), kwargs

    def _end(self, model: Module, args: Any, output: Any) -> None:
        self.fields.restore()
        self.mtp_products_left = 0

    def _with_mtp(self, packed_seq_params: Any) -> None:
        config = self.model.config
        self._require_recompute()
        factor = getattr(packed_seq_params, NORMALIZATION_FACTOR, None)
        if factor is not None and config.calculate_per_token_loss:
            if factor <= 0:
                raise ValueError(f"{NORMALIZATION_FACTOR} must be positive, not {factor}.")
            factor *= config.mtp_loss_scaling_factor
            self.fields.configure(self.model, mtp_loss_scaling_factor=factor)
        if getattr(packed_seq_params, "local_cp_size", None) is not None:
            self._over(packed_seq_params.cp_group)
        self.mtp_products_left = config.mtp_num_layers

    def _over(self, cp_group: Any) -> None:
        """Shift labels and tokens over the context-parallel ranks of this micro-batch."""
        groups = copy(self.model.pg_collection)
        groups.cp = cp_group
        self.fields.set(self.model, "pg_collection", groups)
        for layer in mtp_layers(self.model):
            self.fields.set(layer, "cp_group", cp_group)

    def _detach_head(self, layer: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Megatron multiplies once per MTP layer, and only then for the main output."""
        if self.mtp_products_left == 0:
            return None
        self.mtp_products_left -= 1
        weight = kwargs.get("weight")
        return args, kwargs | {"weight": (layer.weight if weight is None else weight).detach()}

    def _require_recompute(self) -> None:
        model = self.model
        if not model.training or model.config.recompute_granularity != "full":
            return
        if not all(map(can_recompute, mtp_layers(model))):
            raise HookError(
                "config.recompute_granularity='full' with MTP: this megatron-core cannot recompute an MTP layer "
                "(_checkpointed_forward takes no padding_mask); call patch_mtp_layer_checkpointed_forward(model) from "
                "mcore_unpatch.compat.verl.mtp_patch, or use megatron-core 0.19."
            )
