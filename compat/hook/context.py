"""What a caller can pass to a processor for one call, besides the keywords of the hook."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any

from torch import Tensor

from mcore_unpatch.compat.hook.groups import ProcessGroups, resolve_groups


@dataclass(frozen=True)
class HookContext:
    """Passed as `output_processor_context`; every field may be left out.

    `labels`, `mask` and a `temperature` tensor are `[b, s]`; if given, they override the model's arguments and the
    processor's own options. `mask_count` is the number of rows that `mask` keeps; passing it avoids the one device
    sync. `lengths` `[sequences]` are lengths without padding, for next-token labels. `keep_mask` `[b, s, vocab / tp]`
    selects the tokens of this rank's vocabulary that take part (top-p and top-k replay). `token_ids` `[b, s, k]` are
    for `LogProbsAt`, `teacher` is for `DistillationLoss`.
    """

    groups: ProcessGroups | None = None
    temperature: float | Tensor | None = None
    labels: Tensor | None = None
    mask: Tensor | None = None
    mask_count: int | None = None
    lengths: Tensor | None = None
    keep_mask: Tensor | None = None
    token_ids: Tensor | None = None
    teacher: Any = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, context: Any) -> "HookContext":
        """The context as given: None, a `HookContext`, or a mapping.

        Unknown keys go into `extra`; a key that looks like a misspelt field raises a TypeError.
        """
        if context is None:
            return cls()
        if isinstance(context, cls):
            return context
        if isinstance(context, Mapping):
            return cls().updated(context)
        raise TypeError(
            f"output_processor_context: expected a HookContext, a mapping or None, got {type(context).__name__}"
        )

    def updated(self, values: Mapping[str, Any]) -> "HookContext":
        """The same with other fields; unknown names go into `extra`, and so does `x` of `extra.x`."""
        fields_given = {name: value for name, value in values.items() if name in _NAMES and name != "extra"}
        extra = {name: value for name, value in values.items() if name not in _NAMES}
        _refuse_slips(name for name in extra if not str(name).startswith(_EXTRA))
        extra = {name.removeprefix(_EXTRA) if isinstance(name, str) else name: value for name, value in extra.items()}
        return replace(self, **fields_given, extra={**self.extra, **values.get("extra", {}), **extra})


def _refuse_slips(keys: Iterable[Any]) -> None:
    """Raise for a name that looks like a misspelt field of `HookContext`."""
    for key in map(str, keys):
        close = get_close_matches(key, _NAMES, n=1, cutoff=0.8)
        meant = [name for name in _NAMES if name in key.split("_") or (len(key) > 2 and name.startswith(key))]
        if close or meant:
            raise TypeError(
                f"output_processor_context: unknown key {key!r}; did you mean {(close or meant)[0]!r}? Put keys of "
                "your own under 'extra'."
            )


def complete_context(context: Any, model: Any, processor: Any = None) -> Any:
    """Fill in the model's groups; a context of another type, for a processor of your own, is returned unchanged.

    A mapping for a processor with `takes_own_context` only gets "groups".
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


_EXTRA = "extra."
_NAMES = {f.name for f in fields(HookContext)}
