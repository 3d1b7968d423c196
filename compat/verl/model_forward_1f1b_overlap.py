"""veRL's `model_forward_1f1b_overlap` on the hook: log-probs in a schedule plan, with no state left on the model."""

from ..requirements import require_hook, say_once

require_hook(__name__, unpatched=True)

from typing import Any, cast

from torch import Tensor
from torch.nn import Module

from ..hook.attach import schedule_plan_with_processor
from ..hook.call import Logits
from ..hook.find import find_language_model, refuse_patched
from .batches import batch_of
from .installed import FusedProcessor, Numbers, state_of, warn_where_kept


def gptmodel_forward_1f1b_overlap(
    model: Module,
    input_ids: Tensor,
    position_ids: Tensor | None,
    attention_mask: Tensor,
    labels: Tensor | None = None,
    labels_mask: Tensor | None = None,
    multi_modal_inputs: dict[str, Any] | None = None,
    logits_processor: Any = None,
    logits_processor_args: Any = None,
    temperature: float | Tensor = 1.0,
    *,
    calculate_entropy: bool = False,
    numbers: Numbers = "verl",
) -> Any:
    """Megatron's schedule plan of one micro-batch: `(log_probs[, entropy])` `[b, s]`, without labels `(logits,)`."""
    say_once(__name__)
    path = find_language_model(model)
    refuse_patched(__name__, path.model)
    config, state = cast(Any, path.model).config, state_of(path)
    mtp = bool(config.mtp_num_layers)
    if logits_processor is not None or multi_modal_inputs:
        raise NotImplementedError("logits_processor, multi_modal_inputs: this plan has no logits, only text.")
    if mtp and labels is None:
        raise ValueError("labels are missing; pass them, or Megatron's plan would make up labels for the MTP loss.")
    if mtp and state and state.detached_head and not getattr(config, "mtp_detach_heads", False):
        raise NotImplementedError("mtp_updates_lm_head=False has no effect in a schedule plan; set mtp_detach_heads.")
    warn_where_kept("gptmodel_forward_1f1b_overlap", numbers, config)
    batch = batch_of(input_ids, attention_mask, config, "bshd" if mtp else "thd")
    arguments = batch.model_arguments(input_ids, position_ids)
    row, mask = (None if one is None else batch.pack(one) for one in (labels, labels_mask))
    if mtp:
        arguments |= {"labels": row, "loss_mask": (batch.pack(attention_mask) if mask is None else mask).float()}

    def output(**keywords: Any) -> tuple[Tensor, ...]:
        if row is None:
            return (batch.unpack(Logits()(**keywords)),)
        out = FusedProcessor(numbers, entropy=calculate_entropy)(**keywords)
        log_probs = out.log_probs if mask is None else out.log_probs.masked_fill(mask == 0, 0.0)
        return tuple(batch.unpack(one) for one in (log_probs, out.entropy)[: 1 + calculate_entropy])

    return schedule_plan_with_processor(model, output, context={"labels": row, "temperature": temperature}, **arguments)
