"""The processor: the model returns `LazyLogits` where it returned logits."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mcore_unpatch.compat.fused_head.settings import PassSettings
from mcore_unpatch.compat.hook.call import HookCall
from mcore_unpatch.compat.hook.checkpoints import refuse_reentrant_checkpoint
from mcore_unpatch.compat.hook.context import HookContext
from mcore_unpatch.compat.hook.groups import resolve_groups
from mcore_unpatch.compat.hook.head import enter_head
from mcore_unpatch.compat.hook.output_layer import fuses_weight_grad
from mcore_unpatch.compat.logits.lazy import LazyLogits, LMHead
from mcore_unpatch.compat.packing.gather import sum_gradient


@dataclass(frozen=True, kw_only=True)
class DeferredHead(PassSettings):
    """A model with this attached returns `LazyLogits` `[b, s, vocab / tp]` where it returned logits.

    A call with labels returns the loss `[b, s]`, as Megatron does, without building logits either. The options are
    those of `linear_logprob`; a `temperature` in the context overrides the option.
    """

    temperature: float | Tensor = 1.0

    def __call__(self, **keywords: Any) -> LazyLogits | Tensor:
        """Return the logits' stand-in, or the loss of the call's labels."""
        call = HookCall.of(keywords)
        context = HookContext.of(call.context)
        for name in ("labels", "mask", "mask_count", "lengths", "keep_mask", "token_ids", "teacher"):
            if getattr(context, name) is not None:
                raise TypeError(
                    f"output_processor_context: {name!r} has no effect on DeferredHead, which computes nothing in the "
                    "forward; pass it to the method of LazyLogits that you call."
                )
        groups = context.groups or resolve_groups()
        hidden, gathered = enter_head(call, groups)  # [s, b, h]
        if not gathered:
            hidden = sum_gradient(hidden, groups.tp)
        settings = self.of_head(logit_scale=call.logit_scale, fuse_main_grad=fuses_weight_grad(call))
        logits = LazyLogits(hidden.transpose(0, 1).contiguous(), LMHead.of(call.weight, groups, settings))
        if not torch.is_grad_enabled():
            if call.labels is None:
                refuse_reentrant_checkpoint("LazyLogits are", returned=True)
            logits = logits.detach()  # as logits made now have no graph, whoever asks later
        temperature = self.temperature if context.temperature is None else context.temperature
        if isinstance(temperature, Tensor) and temperature.dim() > 0:
            temperature = temperature[..., None]  # [b, s, 1]
        logits = logits / temperature
        return logits if call.labels is None else -logits.log_probs(call.labels)
