"""Real logits in a shim: a critic, another backend or a schedule plan still has them, and they go where they went."""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from mcore_unpatch.compat.logits.lazy import LazyLogits

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def real_logits_to(home: str) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Call the decorated function with `LazyLogits`, and the function of its name in module `home` with real logits."""

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        first, name = next(iter(signature(function).parameters)), function.__name__

        @wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            logits = args[0] if args else kwargs.get(first)
            if isinstance(logits, LazyLogits):
                return function(*args, **kwargs)
            return _own(home, name, logits)(*args, **kwargs)  # type: ignore[no-any-return]

        return call

    return decorate


def _own(home: str, name: str, logits: Any) -> Any:
    """The trainer's own function; raises if there is none, or if it has become ours."""
    try:
        found = getattr(import_module(home), name, None)
    except ImportError:
        found = None
    if found is None or str(getattr(found, "__module__", "")).startswith("mcore_unpatch."):
        raise TypeError(
            f"{name}: expected the LazyLogits that a model returns after attach(model, DeferredHead()), got "
            f"{type(logits).__name__}, and there is no {home}.{name} for it; attach DeferredHead to this model, too."
        )
    return found
