"""What a caller tells a processor about one call, beside the keywords of the hook."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any

from torch import Tensor

from mcore_unpatch.compat.hook.groups import ProcessGroups, resolve_groups


@dataclass(frozen=True)
class HookContext:
    """Passed as `output_processor_context`; every field may be left out.

    `labels`, `mask` and a `temperature` tensor are `[b, s]` and, where given, stand before what the model was called
    with and what the processor was made with. `mask_count` is the number of rows that `mask` keeps, and spares the one
    wait for the device. `lengths` `[sequences]` are lengths without padding, for next-token labels. `keep_mask`
    `[b, s, vocab / tp]` says which tokens of this rank's vocabulary take part (top-p and top-k replay).
    """

    groups: ProcessGroups | None = None
    temperature: float | Tensor | None = None
    labels: Tensor | None = None
    mask: Tensor | None = None
    mask_count: int | None = None
    lengths: Tensor | None = None
    keep_mask: Tensor | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, context: Any) -> "HookContext":
        """The context as given: None, a `HookContext`, or a mapping.

        Keys not known here land in `extra`; one that looks like a slip of the pen is an error.
        """
        if context is None:
            return cls()
        if isinstance(context, cls):
            return context
        if isinstance(context, Mapping):
            known = {key: value for key, value in context.items() if key in _NAMES}
            extra = {key: value for key, value in context.items() if key not in _NAMES}
            refuse_slips(extra)
            return cls(**{**known, "extra": {**known.get("extra", {}), **extra}})
        raise TypeError(
            f"output_processor_context: expected a HookContext, a mapping or None, got {type(context).__name__}"
        )


def refuse_slips(keys: Iterable[Any]) -> None:
    """Raise for a name that is no field of `HookContext` and looks as if it were meant for one."""
    for key in map(str, keys):
        close = get_close_matches(key, _NAMES, n=1, cutoff=0.8)
        meant = [name for name in _NAMES if name in key.split("_") or (len(key) > 2 and name.startswith(key))]
        if close or meant:
            raise TypeError(
                f"output_processor_context: {key!r} is no field of HookContext, {(close or meant)[0]!r} is; what is "
                "your own goes under 'extra'"
            )


def complete_context(context: Any, model: Any, processor: Any = None) -> Any:
    """A context of our own kind learns the model's groups; one that a processor brings for itself stays as it is.

    So does a mapping for a processor that says `takes_own_context`, but for its "groups".
    """
    if getattr(processor, "takes_own_context", False):
        context = {} if context is None else context
        context.setdefault("groups", resolve_groups(model))
        return context
    if context is not None and not isinstance(context, (HookContext, Mapping)):
        return context
    known = HookContext.of(context)
    given = known.groups or ProcessGroups()
    return replace(known, groups=resolve_groups(model, tp=given.tp, cp=given.cp, pp=given.pp))


_NAMES = {f.name for f in fields(HookContext)}
