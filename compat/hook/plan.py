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
    """Call `build_schedule_plan(*args, **kwargs)` of the language model in `model`, with `processor` at the output.

    An attached processor has no effect here: a plan does not call `forward`. Several results come as a plain tuple.
    Nothing can check later that the processor ran, so a model whose `_postprocess` was replaced raises at once.
    """
    inner = find_language_model(model).model
    refuse_patched("schedule_plan_with_processor", inner, ("_postprocess", "build_schedule_plan"))
    build = getattr(inner, "build_schedule_plan", None)
    if build is None or not takes_hook(build, by_name=True):
        raise HookMissingError(
            f"{type(inner).__name__} has no build_schedule_plan that takes output_processor; use a GPTModel of "
            "megatron-core 0.18 or later (HybridModel has none)."
        )
    hook = dict(zip(HOOK_KEYWORDS, (AsTuple(processor), complete_context(context, inner)), strict=True))
    return build(*args, **hook, **kwargs)
