"""What a caller tells a processor about one call, beside the keywords of the hook."""

from collections.abc import Mapping
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
    wait for the device. `lengths` `[sequences]` are lengths without padding, for next-token labels.
    """

    groups: ProcessGroups | None = None
    temperature: float | Tensor | None = None
    labels: Tensor | None = None
    mask: Tensor | None = None
    mask_count: int | None = None
    lengths: Tensor | None = None
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
            for key in extra:
                if close := get_close_matches(str(key), _NAMES, n=1, cutoff=0.8):
                    raise TypeError(
                        f"output_processor_context: {key!r} is no field of HookContext, {close[0]!r} is; what is your "
                        "own goes under 'extra'"
                    )
            return cls(**{**known, "extra": {**known.get("extra", {}), **extra}})
        raise TypeError(
            f"output_processor_context: expected a HookContext, a mapping or None, got {type(context).__name__}"
        )


def complete_context(context: Any, model: Any) -> Any:
    """A context of our own kind learns the model's groups; one that a processor brings for itself stays as it is."""
    if context is not None and not isinstance(context, (HookContext, Mapping)):
        return context
    known = HookContext.of(context)
    given = known.groups or ProcessGroups()
    return replace(known, groups=resolve_groups(model, tp=given.tp, cp=given.cp, pp=given.pp))


_NAMES = {f.name for f in fields(HookContext)}
