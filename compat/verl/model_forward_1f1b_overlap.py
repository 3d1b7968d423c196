"""veRL's `model_forward_1f1b_overlap` on the hook: log-probs in a schedule plan, with no state left on the model."""

from mcore_unpatch.compat.requirements import require_hook, say_once

require_hook(__name__, unpatched=True)

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import Module

from mcore_unpatch.compat.hook.attach import schedule_plan_with_processor
from mcore_unpatch.compat.hook.call import HookContext
from mcore_unpatch.compat.hook.find import find_language_model, refuse_patched
from mcore_unpatch.compat.hook.processors import Logits
from mcore_unpatch.compat.verl.batches import batch_of, vision_arguments
from mcore_unpatch.compat.verl.installed import FusedProcessor, Numbers, state_of, warn_where_kept


def gptmodel_forward_1f1b_overlap(
    model: Module,
    input_ids: Tensor,
    position_ids: Tensor | None,
    attention_mask: Tensor,
    labels: Tensor | None = None,
    labels_mask: Tensor | None = None,
    multi_modal_inputs: dict[str, Any] | None = None,
    logits_processor: Callable[..., Any] | None = None,
    logits_processor_args: dict[str, Any] | None = None,
    temperature: float | Tensor = 1.0,
    *,
    calculate_entropy: bool = False,
    numbers: Numbers = "verl",
) -> Any:
    """Megatron's schedule plan of one micro-batch. Its output is the tuple `(log_probs,)`, `[b, s]` fp32.

    With `calculate_entropy` it is `(log_probs, entropy)`: Megatron then calls the loss function with both, and the loss
    must depend on both. Without labels it is `(logits,)`, `[b, s, vocab / tp]`. Labels are aligned with the outputs,
    and log-probs are 0 where `labels_mask` is false. Every plan has its own batch: any number may be in flight.
    The batch is packed; with MTP layers it stays padded, because Megatron's plan does not support both together.
    `numbers` is as in `patch_fused_forward`.
    """
    say_once(__name__)
    if logits_processor is not None:
        raise NotImplementedError(
            "logits_processor: this schedule plan computes no logits; read log-probs and entropy from the plan's "
            "output, or pass a processor to mcore_unpatch.compat.schedule_plan_with_processor."
        )
    if vision_arguments(multi_modal_inputs, input_ids.device):
        raise NotImplementedError(
            "multi_modal_inputs: Megatron's schedule plan supports text models only; leave them out."
        )
    path = find_language_model(model)
    inner: Any = path.model
    refuse_patched(__name__, inner)
    warn_where_kept("gptmodel_forward_1f1b_overlap", numbers, inner.config)
    mtp = bool(inner.config.mtp_num_layers)
    if mtp and labels is None:
        raise ValueError("labels are missing; pass them, or Megatron's plan would make up labels for the MTP loss.")
    state = state_of(path)
    detached_head = state is not None and not state.mtp_updates_lm_head
    if mtp and detached_head and not getattr(inner.config, "mtp_detach_heads", False):
        raise NotImplementedError(
            "mtp_updates_lm_head=False has no effect in a schedule plan; set config.mtp_detach_heads (megatron-core "
            "0.19), which keeps the MTP loss from the LM head and the encoder."
        )
    batch = batch_of(input_ids, attention_mask, inner.config, "bshd" if mtp else "thd")
    arguments = {**batch.arguments, "input_ids": batch.pack(input_ids), "attention_mask": None}
    if position_ids is not None and position_ids.shape == attention_mask.shape:
        arguments["position_ids"] = batch.pack(position_ids)
    row = None if labels is None else batch.pack(labels)
    mask = None if labels_mask is None else batch.pack(labels_mask)
    if mtp:
        counted = batch.pack(attention_mask) if mask is None else mask
        arguments |= {"labels": row, "loss_mask": counted.float()}

    def output(**keywords: Any) -> tuple[Tensor, ...]:
        if row is None:
            return (batch.unpack(Logits()(**keywords)),)
        out = FusedProcessor.giving(numbers, entropy=calculate_entropy)(**keywords)
        log_probs = out.log_probs if mask is None else out.log_probs.masked_fill(mask == 0, 0.0)
        results = (log_probs, out.entropy) if calculate_entropy else (log_probs,)
        return tuple(batch.unpack(result) for result in results)

    context = HookContext(labels=row, temperature=temperature)
    return schedule_plan_with_processor(model, output, context=context, **arguments)
