"""Attach a processor to a model whose callers cannot change their call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from torch.nn import Module

from mcore_unpatch.compat.hook.call import Processor, is_inference, require_processor
from mcore_unpatch.compat.hook.context import HookContext, complete_context
from mcore_unpatch.compat.hook.entrance import bypassed, enter_as_module
from mcore_unpatch.compat.hook.errors import AttachmentError
from mcore_unpatch.compat.hook.find import HOOK_KEYWORDS, HookPath, argument_names, find_language_model
from mcore_unpatch.compat.hook.provide import Handle, installed_on, provide_hook
from mcore_unpatch.compat.hook.under_way import INSTALLING, UnderWay
from mcore_unpatch.compat.hook.with_processor import Watched, require_called

# Takes the arguments of a call by name (and may remove legacy ones); returns the processor and context for that call,
# or None to leave the call alone.
Select = Callable[[dict[str, Any]], tuple[Processor, Any] | None]


def attach(
    model: Module | Sequence[Module],
    processor: Processor,
    context: Any = None,
    *,
    legacy: Mapping[str, str] | None = None,
    when: Callable[[], bool] | None = None,
) -> Handle:
    """Run `processor` at the output of every forward of `model` until the handle is removed.

    `model` may be wrapped (DDP, Float16Module, FSDP, a vision-language model) or be the list of chunks of a virtual
    pipeline. `legacy` translates keywords that callers of an old patch still pass into fields of the context, such as
    `{"temperature": "temperature"}`; a name that is not a field of `HookContext` goes into its `extra`.
    `when` is called at the start of every forward; if it returns False, that forward takes Megatron's own path. Calls
    for inference always take Megatron's own path.
    Attaching the same processor again changes nothing and returns the same handle; attaching a different one, or the
    same one with a different `when`, raises `AttachmentError`. The handle is also a context manager; leaving its block
    does not remove what was attached before the block.

    If a whole model is checkpointed, its forward runs again in the backward, and `when` is called again there: stay
    attached until then, and make `when` return what it returned the first time. PyTorch raises if the two runs save
    different tensors; with `use_reentrant=True` it raises only if their outputs differ in shape, and otherwise the
    gradients are wrong. Megatron's own recompute works on layers inside the model and does not call `when`.
    """
    require_processor(processor)
    if when is not None and not callable(when):
        raise TypeError(f"when: expected a function to call at every forward, got {when!r}")
    names = dict(legacy or {})

    def select(keywords: dict[str, Any]) -> tuple[Processor, Any] | None:
        values = {names[name]: keywords.pop(name) for name in list(keywords) if name in names}
        if is_inference(keywords) or (when is not None and not when()):
            return None
        if keywords.get("output_processor") is not None:
            raise AttachmentError(
                f"this call passes its own output_processor, but {processor!r} is attached to the model; remove() the "
                "handle or drop the argument."
            )
        return processor, HookContext.of(context).updated(values) if values else context

    return attach_selector(model, select, same_as=(processor, context, names, when))


def attach_selector(model: Module | Sequence[Module], select: Select, *, same_as: Any = None) -> Handle:
    """Like `attach`, but `select(keywords)` chooses the processor and context of each call, or None for no change.

    Two attachments are the same if their `same_as` is equal; without it, only if `select` is the same function.
    """
    chunks = model if isinstance(model, Sequence) else [model]
    if not chunks:
        raise ValueError("model: expected a model or a list of its chunks, got an empty list")
    identity = select if same_as is None else same_as
    paths = [find_language_model(chunk) for chunk in chunks]
    with INSTALLING:
        found = [installed_on(path.model, _Attachment) for path in paths]
        if any(one is not None for one in found):
            return _the_same(found, identity).claim()
        handle = Handle()
        try:
            for path in paths:
                _Attachment(path, select, identity, handle)
        except BaseException:
            handle.remove()
            raise
        return handle.claim()


class _Attachment:
    """The pre-hook that adds the two arguments to a call, and the hook that checks that they were used."""

    def __init__(self, path: HookPath, select: Select, identity: Any, handle: Handle) -> None:
        self.path, self.select, self.identity, self.handle = path, select, identity, handle
        self.names = argument_names(path.model)
        self.calls: UnderWay[Watched | None] = UnderWay()
        # Must be registered before our own hooks: it then runs last on the way in, and first on the way out.
        handle.on_removal(provide_hook(path.model).remove)
        hooks = [
            path.model.register_forward_pre_hook(self._before, with_kwargs=True, prepend=True),
            path.model.register_forward_hook(self._after),
            path.model.register_forward_hook(self._forget, always_call=True),
        ]
        if isinstance(decoder := getattr(path.model, "decoder", None), Module):
            hooks.append(decoder.register_forward_pre_hook(self._require_entered))
        handle.on_removal(*(hook.remove for hook in hooks), enter_as_module(path.wrappers, path.model))

    def _before(self, model: Module, args: Any, kwargs: dict[str, Any] | None = None) -> Any:
        if kwargs is None:  # another thread, while this hook is being registered or removed
            return None
        positional = dict(zip(self.names, args, strict=False))
        keywords = positional | kwargs
        chosen = self.select(keywords)
        kwargs = {name: value for name, value in keywords.items() if name not in positional}
        watched = None if chosen is None else Watched(chosen[0])
        if chosen is not None:
            kwargs |= zip(HOOK_KEYWORDS, (watched, complete_context(chosen[1], model, chosen[0])), strict=True)
        self.calls.begin(watched)
        return args, kwargs

    def _require_entered(self, decoder: Module, args: Any) -> None:
        """Raise if this thread runs the model without having passed our hooks."""
        if not self.calls and not is_inference():
            raise bypassed(self.path.model)

    def _after(self, model: Module, args: Any, output: Any) -> None:
        watched = self.calls.end()
        if watched is not None:
            require_called(watched, self.path)

    def _forget(self, model: Module, args: Any, output: Any) -> None:
        self.calls.end()


def _the_same(found: list[_Attachment | None], identity: Any) -> Handle:
    handles = {None if one is None else id(one.handle) for one in found}
    first = next(one for one in found if one is not None)
    if len(handles) == 1 and _equal(first.identity, identity):
        return first.handle
    raise AttachmentError(
        "a processor is already attached to this model, and it differs from this one in the processor, context, legacy "
        "or when (two lambdas are never equal); remove() its handle first, or combine the two with Compose."
    )


def _equal(left: Any, right: Any) -> bool:
    """Equality that never compares the values of tensors: two tensors are equal only if they are the same object."""
    if left is right:
        return True
    if isinstance(left, (tuple, list)) and type(left) is type(right) and len(left) == len(right):
        return all(_equal(a, b) for a, b in zip(left, right, strict=True))
    if type(left) is not type(right):
        return False
    if hasattr(left, "__dataclass_fields__"):
        return all(_equal(getattr(left, f.name), getattr(right, f.name)) for f in fields(left))
    result = left == right
    return result if isinstance(result, bool) else False
