"""How a processor gets into a call of a model: for one call, or attached to a model whose callers cannot change."""

from ..requirements import require_hook, say_once

require_hook(__name__)

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from threading import get_ident
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils._pytree import tree_leaves

from . import call as hook, find
from .find import INSTALLING, Handle, PerThread
from .hybrid import OutputLayerTap

_Kind = TypeVar("_Kind")
Finish = Callable[[], None] | None  # called when a call ends, however it does
# Takes the arguments of a call by name (and may remove legacy ones); returns the processor and context for that call,
# or None to leave the call alone.
Select = Callable[[dict[str, Any]], tuple[hook.Processor, Any] | None]


def attach(
    model: Module | Sequence[Module],
    processor: hook.Processor,
    context: Any = None,
    *,
    legacy: Mapping[str, str] | None = None,
    when: Callable[[], bool] | None = None,
) -> Handle:
    """Run `processor` at the output of every forward of `model` until the handle is removed.

    `model` may be wrapped or be the list of chunks of a virtual pipeline. `legacy` translates keywords that callers of
    an old patch still pass into fields of the context, such as `{"temperature": "temperature"}`. Calls for inference
    take Megatron's own path, and so does a forward at whose start `when` returns False. Attaching the same again
    returns the same handle, anything else raises `AttachmentError`. The handle is also a context manager, whose block
    does not remove what was attached before it.

    If a whole model is checkpointed, its forward runs again in the backward: stay attached until then, and let `when`
    return the same, or with `use_reentrant=True` gradients may be wrong (results are tensors or a tuple there).
    """
    say_once(__name__)
    hook.require_processor(processor)
    if when is not None and not callable(when):
        raise TypeError(f"when: expected a function to call at every forward, got {when!r}")
    names = dict(legacy or {})
    hook.HookContext().updated(dict.fromkeys(names.values()))  # raises now for a misspelt field

    def select(keywords: dict[str, Any]) -> tuple[hook.Processor, Any] | None:
        values = {names[name]: keywords.pop(name) for name in list(keywords) if name in names}
        if hook.is_inference(keywords) or (when is not None and not when()):
            return None
        if keywords.get("output_processor") is not None:
            text = f"this call passes its own output_processor, but {processor!r} is attached to the model"
            raise hook.AttachmentError(f"{text}; remove() the handle or drop the argument.")
        return processor, hook.HookContext.of(context).updated(values) if values else context

    chunks = model if isinstance(model, Sequence) else [model]
    if not chunks:
        raise ValueError("model: expected a model or a list of its chunks, got an empty list")
    paths = [find.find_language_model(chunk) for chunk in chunks]
    return attach_along(paths, select, (processor, context, names, when))


def attach_along(paths: list[find.HookPath], select: Select, identity: Any, finish: Finish = None) -> Handle:
    """`attach` along ways that were looked up before; `select` chooses the processor and context of each call.

    Two attachments are the same if their identities are equal.
    """
    with INSTALLING:
        attached = [installed_on(path.model, Attachment) for path in paths]
        if (first := next((attachment for attachment in attached if attachment is not None), None)) is not None:
            if all(one is not None and one.handle is first.handle and one.same_as(identity) for one in attached):
                return first.handle.claim()
            text = "a processor is already attached to this model, and it differs from this one in the processor, "
            text += "context, legacy or when (two lambdas are never equal); remove() its handle first, or use Compose."
            raise hook.AttachmentError(text)
        with ExitStack() as on_error:
            handle = Handle()
            on_error.callback(handle.remove)
            for path in paths:
                Attachment(path, select, identity, handle, finish)
            on_error.pop_all()
        return handle.claim()


def hook_keywords(processor: hook.Processor, context: Any) -> dict[str, Any]:
    """Both keywords of the hook."""
    return dict(zip(find.HOOK_KEYWORDS, (processor, context), strict=True))


class Attachment:
    """The pre-hook that adds the two arguments to a call, and the hook that checks that they were used."""

    def __init__(self, path: find.HookPath, select: Select, identity: Any, handle: Handle, finish: Finish) -> None:
        self.path, self.select, self.identity, self.handle, self.finish = path, select, identity, handle, finish
        self.names = find.argument_names(path.model)
        self.calls: PerThread[Watched | None] = {}
        # Must be registered before our own hooks: it then runs last on the way in, and first on the way out.
        handle.on_removal(provide_hook(path.model).remove)
        hooks = [
            path.model.register_forward_pre_hook(self._before, with_kwargs=True, prepend=True),
            path.model.register_forward_hook(self._after),
            path.model.register_forward_hook(self._forget, always_call=True),
        ]
        if isinstance(decoder := getattr(path.model, "decoder", None), Module):
            hooks.append(decoder.register_forward_pre_hook(self._require_entered))
        handle.on_removal(*(one.remove for one in hooks))

    def same_as(self, identity: Any) -> bool:
        """Whether it is this one; two tensors of several numbers are the same only if they are one object."""
        try:
            return bool(self.identity == identity)
        except (RuntimeError, ValueError):  # several numbers have no truth of their own
            return False

    def _before(self, model: Module, args: Any, kwargs: dict[str, Any] | None = None) -> Any:
        if kwargs is None:  # another thread, while this hook is being registered or removed
            return None
        positional = dict(zip(self.names, args, strict=False))
        keywords = positional | kwargs
        chosen = self.select(keywords)
        kwargs = {name: value for name, value in keywords.items() if name not in positional}
        watched = None
        if chosen is not None:
            watched = Watched(chosen[0], self.path)
            kwargs |= hook_keywords(watched, hook.complete_context(chosen[1], model, chosen[0]))
        self.calls[get_ident()] = watched
        return args, kwargs

    def _require_entered(self, decoder: Module, args: Any) -> None:
        """Raise if this thread runs the model without having passed our hooks.

        In a backward it does not run the model: a checkpointed decoder is computed again.
        """
        if get_ident() not in self.calls and not hook.is_inference() and torch._C._current_graph_task_id() == -1:
            raise find.bypassed(self.path.model)

    def _after(self, model: Module, args: Any, output: Any) -> None:
        watched = self.calls.pop(get_ident(), None)
        if watched is not None:
            require_called(watched, self.path)
            watched.check_output(model, args, output)

    def _forget(self, model: Module, args: Any, output: Any) -> None:
        self.calls.pop(get_ident(), None)
        if self.finish is not None:
            self.finish()


def provide_hook(model: Module) -> Handle:
    """Provide the hook on a HybridModel whose `forward` lacks it, through its output layer, until `remove()`.

    Does nothing if `forward` has the hook; any other model without raises `HookMissingError`.
    """
    path, handle = find.find_language_model(model), Handle()
    if path.has_hook:
        return handle
    if not path.is_hybrid:
        raise find.missing_hook(path)
    with INSTALLING:
        tap = installed_on(path.model, OutputLayerTap) or OutputLayerTap(path)
        handle.on_removal(tap.handle.claim().release)
    return handle


def installed_on(model: Module, kind: type[_Kind]) -> _Kind | None:
    """The `kind` one of whose methods is a forward pre-hook of `model`, if any."""
    owners = (getattr(one, "__self__", None) for one in model._forward_pre_hooks.values())
    return next((owner for owner in owners if isinstance(owner, kind)), None)


def call_with_processor(
    model: Module, processor: hook.Processor, *args: Any, context: Any = None, **kwargs: Any
) -> Any:
    """Call `model(*args, **kwargs)` with `processor` at the output, through every wrapper's own `forward`.

    Raises if the hook is missing, refused or dropped. On a pipeline stage without output, returns its own result.
    """
    say_once(__name__)
    path = find.find_language_model(model)
    return call_along(path, model, processor, hook.complete_context(context, path.model, processor), args, kwargs)


def call_along(
    path: find.HookPath, model: Module, processor: hook.Processor, context: Any, args: Any, kwargs: Any
) -> Any:
    """`call_with_processor` along a way that was looked up before, with the context as it is."""
    find.require_open_wrappers(path)
    watched = Watched(processor, path)
    keywords = {**kwargs, **hook_keywords(watched, context)}
    with ExitStack() as installed:
        if not path.has_hook:
            installed.enter_context(provide_hook(model))
        if watched.own_methods:
            installed.callback(path.model.register_forward_hook(watched.check_output).remove)
        result = model(*args, **keywords)
    require_called(watched, path)
    return result


def schedule_plan_with_processor(
    model: Module, processor: hook.Processor, *args: Any, context: Any = None, **kwargs: Any
) -> Any:
    """Call `build_schedule_plan(*args, **kwargs)` of the language model in `model`, with `processor` at the output.

    An attached processor has no effect here: a plan does not call `forward`. Several results come as a plain tuple.
    """
    say_once(__name__)
    path = find.find_language_model(model)
    inner = path.model
    # Nothing can check later that the processor ran.
    find.refuse_patched("schedule_plan_with_processor", inner, ("_postprocess", "build_schedule_plan"))
    if own := path.own_output_methods(["_postprocess"]):
        text = f"{own[0]} is not Megatron's own, and a plan cannot tell what it makes of the processor's result"
        raise hook.HookError(f"{text}; call the model with call_with_processor, which can.")
    build = getattr(inner, "build_schedule_plan", None)
    if build is None or not find.names_hook(build):
        text = f"{type(inner).__name__} has no build_schedule_plan that takes output_processor"
        raise hook.HookMissingError(f"{text}; use a GPTModel (HybridModel has none).")
    hook.require_processor(processor)

    def as_tuple(**keywords: Any) -> Any:
        result = processor(**keywords)
        return tuple(result.values()) if isinstance(result, hook.Outputs) else result

    return build(*args, **hook_keywords(as_tuple, hook.complete_context(context, inner)), **kwargs)


class Watched:
    """A processor that remembers whether it was called, and what it returned."""

    def __init__(self, processor: hook.Processor, path: find.HookPath) -> None:
        hook.require_processor(processor)
        self.processor = processor
        self.called = False
        # These may change the output, which is right for logits alone.
        self.own_methods = [] if isinstance(processor, hook.Logits) else path.own_output_methods()
        self.thread = get_ident()
        self.returned: set[Any] = set()

    def __call__(self, **keywords: Any) -> Any:
        """Run the processor."""
        self.called = True
        result = self.processor(**keywords)
        if not isinstance(result, (Tensor, tuple)):
            find.refuse_reentrant_checkpoint(type(result).__name__)
        self.returned = _contents(result) if self.own_methods else set()
        return result

    def check_output(self, model: Module, args: Any, output: Any) -> None:
        """A forward hook: raise if a method of a subclass made something else of what the processor returned."""
        mine = self.own_methods and self.called and self.thread == get_ident()
        if mine and not self.returned & _contents(output):
            raise hook.HookError(
                f"{' or '.join(self.own_methods)} changes what the processor returned, as if it were logits "
                "(soft-capped?); return it as it is where output_processor is given, or use Logits() or one like it."
            )


def _contents(result: Any) -> set[Any]:
    """What is in a result, by its memory and how often that was written to, or by identity."""
    leaves = [leaf for leaf in tree_leaves(result) if leaf is not None]
    return {
        (leaf.data_ptr(), 0 if leaf.is_inference() else leaf._version) if isinstance(leaf, Tensor) else id(leaf)
        for leaf in leaves
    }


def require_called(watched: Watched, path: find.HookPath) -> None:
    """Raise if the output stage returned without calling the processor."""
    if watched.called or not path.has_output:
        return
    name, patches = type(path.model).__name__, find.foreign_methods(path.model)
    own = f"{name}.forward"
    wrappers = [f"{type(wrapper).__module__}.{type(wrapper).__qualname__}.forward" for wrapper in path.wrappers]
    remedy = "Pass the keywords on in that wrapper, or use attach(), which hooks the inner model directly."
    raise hook.HookSwallowedError(
        f"{name} returned its output without calling the processor: {', '.join(patches or wrappers or [own])} "
        f"accepted output_processor and dropped it. {'Remove that patch.' if patches else remedy}"
    )
