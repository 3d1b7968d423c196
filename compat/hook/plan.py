"""A processor in Megatron's schedule plan, which overlaps one micro-batch's forward with another's backward."""

from typing import Any

from torch.nn import Module

from mcore_unpatch.compat.hook.call import Processor
from mcore_unpatch.compat.hook.context import complete_context
from mcore_unpatch.compat.hook.errors import HookMissingError
from mcore_unpatch.compat.hook.find import HOOK_KEYWORDS, find_language_model, takes_hook
from mcore_unpatch.compat.hook.legacy import refuse_patched
from mcore_unpatch.compat.hook.processors import AsTuple


def schedule_plan_with_processor(
    model: Module, processor: Processor, *args: Any, context: Any = None, **kwargs: Any
) -> Any:
    """`build_schedule_plan(*args, **kwargs)` of the language model inside `model`, with `processor` at the output.

    An attached processor plays no part here: a plan does not call `forward`. Several results come as a plain tuple.
    Nobody can watch a plan return, so a model whose `_postprocess` was replaced is refused from the start.
    """
    inner = find_language_model(model).model
    refuse_patched("schedule_plan_with_processor", inner, ("_postprocess", "build_schedule_plan"))
    build = getattr(inner, "build_schedule_plan", None)
    if build is None or not takes_hook(build, by_name=True):
        raise HookMissingError(
            f"{type(inner).__name__} has no build_schedule_plan that takes output_processor; GPTModel has one from "
            "megatron-core 0.18 on, HybridModel has none"
        )
    hook = dict(zip(HOOK_KEYWORDS, (AsTuple(processor), complete_context(context, inner)), strict=True))
    return build(*args, **hook, **kwargs)
