"""Logits from a product in fp32, by a hook of PyTorch on the output layer: Megatron lets its caller pass the weight."""

from collections.abc import Sequence
from typing import Any

from torch.nn import Module

from mcore_unpatch.compat.hook.attach import Handle
from mcore_unpatch.compat.hook.errors import HookError
from mcore_unpatch.compat.hook.find import find_language_model


def fp32_logits(model: Module | Sequence[Module]) -> Handle:
    """Multiply by the LM head in fp32 from now on, whatever the model's dtype; `handle.remove()` undoes it.

    The hidden states and the weight, which stays what it is, are cast in every call of the output layer, those of MTP
    layers included: logits are fp32, and gradients come back in the dtype of what was cast. `LogProbs` and its like do
    not need it: they never round logits.
    """
    handle = Handle()
    chunks = model if isinstance(model, Sequence) else [model]
    models: list[Any] = [find_language_model(chunk).model for chunk in chunks]
    last = [model for model in models if model.post_process]
    for one in last:
        _require_plain_gradients(one)
    for one in last:
        handle.on_removal(one.output_layer.register_forward_pre_hook(_in_fp32, with_kwargs=True).remove)
    return handle


def _require_plain_gradients(model: Any) -> None:
    if getattr(model.output_layer, "gradient_accumulation_fusion", False):
        raise HookError(
            "the output layer adds its weight's gradient to main_grad by itself, which a cast weight has not; set "
            "model.output_layer.gradient_accumulation_fusion = False first."
        )
    if model.config.defer_embedding_wgrad_compute:
        raise HookError("config.defer_embedding_wgrad_compute keeps the LM head's inputs for later; set it to False.")


def _in_fp32(layer: Any, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    hidden, *rest = args
    weight, *rest = rest or [given.get("weight")]
    weight = layer.weight if weight is None else weight
    return (hidden.float(), weight.float(), *rest), {name: one for name, one in given.items() if name != "weight"}
