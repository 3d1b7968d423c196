"""Checks that a processor ran: the only proof that nothing dropped it on the way."""

from typing import Any

from mcore_unpatch.compat.hook.call import Processor, require_processor
from mcore_unpatch.compat.hook.errors import HookSwallowedError
from mcore_unpatch.compat.hook.find import HookPath, foreign_methods


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
