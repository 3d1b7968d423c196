"""Multi-token prediction (MTP) in a forward, as veRL means it, through fields set for that call only.

With labels, Megatron runs the MTP layers and adds and logs their loss. Without labels there is no MTP here, whereas
Megatron 0.19 would make labels from `input_ids` and add a loss.
"""

from copy import copy
from typing import Any

from torch.nn import Module
from torch.utils.hooks import RemovableHandle

from mcore_unpatch.compat.hook.call import is_inference
from mcore_unpatch.compat.hook.errors import HookError
from mcore_unpatch.compat.hook.find import argument_names
from mcore_unpatch.compat.hook.one_call import OneCallFields
from mcore_unpatch.compat.verl.mtp_layers import can_recompute, mtp_layers

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
