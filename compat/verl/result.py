"""The result of a fused forward: veRL's own class if veRL can be imported, else an equivalent one."""

from functools import cache
from typing import Any

_FIELDS = ("loss", "logits", "past_key_values", "hidden_states", "attentions", "log_probs", "entropy")


class FusedOutput(dict[str, Any]):
    """Results by attribute and by key; as in veRL's class, a field without a value is None and has no key."""

    def __init__(self, **values: Any) -> None:
        unknown = values.keys() - set(_FIELDS)
        if unknown:
            raise TypeError(f"unknown fields: {', '.join(sorted(unknown))}; the fields are {', '.join(_FIELDS)}.")
        super().__init__({name: values[name] for name in _FIELDS if values.get(name) is not None})

    def __getattr__(self, name: str) -> Any:
        if name in _FIELDS:
            return self.get(name)
        raise AttributeError(f"no field {name!r}; the fields are {', '.join(_FIELDS)}.")

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def fused_output(**values: Any) -> Any:
    """`log_probs`, `entropy` and `hidden_states` as one object."""
    return _output_class()(**values)


@cache
def _output_class() -> type[Any]:
    try:
        from verl.utils.model import CausalLMOutputForPPO
    except ImportError:  # no veRL here, or one without what it needs itself
        return FusedOutput
    found: type[Any] = CausalLMOutputForPPO
    return found
