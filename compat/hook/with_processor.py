"""One call of a model, or one schedule plan, with a processor at the output; and the check that the processor ran."""

from collections.abc import Callable
from typing import Any

from torch.nn import Module

from mcore_unpatch.compat.hook.call import Processor, require_processor
from mcore_unpatch.compat.hook.context import complete_context
from mcore_unpatch.compat.hook.errors import HookMissingError, HookSwallowedError
from mcore_unpatch.compat.hook.find import (
    HOOK_KEYWORDS,
    HookPath,
    find_language_model,
    foreign_methods,
    refuse_patched,
    require_open_wrappers,
    takes_hook,
)
from mcore_unpatch.compat.hook.processors import AsTuple
from mcore_unpatch.compat.hook.provide import provide_hook


def call_with_processor(model: Module, processor: Processor, *args: Any, context: Any = None, **kwargs: Any) -> Any:
    """Call `model(*args, **kwargs)` with `processor` at the output, through every wrapper's own `forward`.

    Raises before the call if the model has no hook or a wrapper refuses the keywords, and after it if a wrapper or a
    patch dropped them. On a pipeline stage without output, returns the stage's own result.
    """
    return call_with(model, processor, args, kwargs, lambda inner: complete_context(context, inner, processor))


def call_with(
    model: Module, processor: Processor, args: Any, kwargs: dict[str, Any], context_for: Callable[[Module], Any]
) -> Any:
    """`call_with_processor` with the context that `context_for` makes for the language model."""
    path = find_language_model(model)
    require_open_wrappers(path)
    watched = Watched(processor)
    with provide_hook(model):
        hook = dict(zip(HOOK_KEYWORDS, (watched, context_for(path.model)), strict=True))
        result = model(*args, **hook, **kwargs)
    require_called(watched, path)
    return result


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


class Watched:
    """A processor that remembers whether it was called."""

    def __init__(self, processor: Processor) -> None:
        require_processor(processor)
        self.processor = processor
        self.called = False

    def __call__(self, **keywords: Any) -> Any:
        """Run the processor."""
        self.called = True
        return self.processor(**keywords)


def require_called(watched: Watched, path: HookPath) -> None:
    """Raise if the output stage returned without calling the processor."""
    if watched.called or not getattr(path.model, "post_process", True):
        return
    suspects = foreign_methods(path.model) or [
        f"{type(wrapper).__module__}.{type(wrapper).__qualname__}.forward" for wrapper in path.wrappers
    ]
    name = type(path.model).__name__
    raise HookSwallowedError(
        f"{name} returned its output without calling the processor: {', '.join(suspects) or f'{name}.forward'} "
        "accepted output_processor and dropped it. Remove that patch, pass the keywords on in that wrapper, or use "
        "attach(), which hooks the inner model directly."
    )
