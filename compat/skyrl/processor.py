"""The processor: the model returns hidden states instead of logits, and the LM-head weight is in the context."""

from typing import Any

from torch import Tensor
from torch.nn import Module

from mcore_unpatch.compat.hook.attach import call_along
from mcore_unpatch.compat.hook.call import HookCall, Processor
from mcore_unpatch.compat.hook.find import find_language_model, refuse_patched, require_open_wrappers
from mcore_unpatch.compat.hook.groups import resolve_groups
from mcore_unpatch.compat.hook.head import enter_head
from mcore_unpatch.compat.hook.output_layer import lent_weight
from mcore_unpatch.compat.packing.gather import sum_gradient


def fused_lm_head_output_processor(**keywords: Any) -> Tensor:
    """Returns hidden states `[b, s, h]` for the functions here; `context["lm_head_weight"]` is their second argument.

    MuP's factor is already applied. The backward sums the gradient over tensor-parallel ranks, with or without sequence
    parallelism.
    """
    call = HookCall.of(keywords)
    context = {} if call.context is None else call.context
    groups = context.get("groups") or resolve_groups()
    hidden, gathered = enter_head(call, groups)
    if not gathered:
        hidden = sum_gradient(hidden, groups.tp)
    context["lm_head_weight"] = lent_weight(call)
    return call.finish(hidden)


# The context is the caller's own dictionary: the weight is put into it.
fused_lm_head_output_processor.takes_own_context = True  # type: ignore[attr-defined]


def call_model_with_fused_lm_head(
    model: Module,
    *args: Any,
    output_processor: Processor = fused_lm_head_output_processor,
    output_processor_context: dict[str, Any],
    **kwargs: Any,
) -> Any:
    """Call `model(*args, **kwargs)` and return hidden states: GPTModel or HybridModel, wrapped, with MTP or MuP.

    Afterwards `output_processor_context["lm_head_weight"]` is this rank's shard of the LM head. On a pipeline stage
    before the last there is no such key, and the stage's own output is returned.
    """
    path, context = find_language_model(model), output_processor_context
    refuse_patched("mcore_unpatch.compat.skyrl", path.model)
    require_open_wrappers(path)
    context.setdefault("groups", resolve_groups(path.model))
    return call_along(path, model, output_processor, context, args, kwargs)
