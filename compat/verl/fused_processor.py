"""Log-probs and entropy in the result object that veRL's callers read: veRL's own if it can be imported."""

from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from megatron.core.config_logger import has_config_logger_enabled, log_config_to_disk
from torch import Tensor

from mcore_unpatch.compat.hook.call import HookCall
from mcore_unpatch.compat.hook.context import HookContext
from mcore_unpatch.compat.hook.errors import UnsupportedHeadError
from mcore_unpatch.compat.hook.head import HeadOptions, Wants, head_pass
from mcore_unpatch.compat.verl.numbers import HEAD_OPTIONS, Numbers

_FIELDS = ("loss", "logits", "past_key_values", "hidden_states", "attentions", "log_probs", "entropy")


@dataclass(frozen=True, kw_only=True)
class FusedProcessor(HeadOptions):
    """`log_probs`, `entropy` (`[b, s]` fp32) and the decoder's `hidden_states`, from one pass over the vocabulary.

    `flat`: `[b * s]` in the order of the labels, as veRL's kernel returns them.
    """

    entropy: bool = True
    flat: bool = False

    @classmethod
    def giving(cls, numbers: Numbers, **options: Any) -> "FusedProcessor":
        """The processor with veRL's or with Megatron's numbers."""
        return cls(**options, **HEAD_OPTIONS[numbers])

    def __call__(self, **keywords: Any) -> Any:
        """Run the pass."""
        call = HookCall.of(keywords)
        refuse_value_head(call.output_layer, call.output_weight)
        out = head_pass(call, self, Wants(logprobs=True, entropy=self.entropy))
        if has_config_logger_enabled(call.config):
            inputs = {name: getattr(call, name) for name in _LOGGED_INPUTS}
            logged = OrderedDict(**inputs, logprobs=out.logprobs, entropy=out.entropy)
            log_config_to_disk(call.config, logged, prefix="input_and_logits")
        results = {"log_probs": out.logprobs, "entropy": out.entropy}
        if self.flat:
            results = {name: value if value is None else value.flatten() for name, value in results.items()}
        return _output_class()(hidden_states=call.hidden_states, **results)


_LOGGED_INPUTS = ("input_ids", "position_ids", "attention_mask", "decoder_input")  # as Megatron logs them with logits


def fused_context(labels: Tensor | None, temperature: float | Tensor | None) -> HookContext:
    """The context of one call; a missing temperature is 1."""
    return replace(HookContext(), labels=labels, temperature=temperature)


def refuse_value_head(output_layer: Any, weight: Tensor | None = None) -> None:
    """Raise for a head with one output per token: without a vocabulary there are no log-probs."""
    weight = getattr(output_layer, "weight", None) if weight is None else weight
    if weight is not None and weight.dim() == 2 and weight.shape[0] == 1:
        raise UnsupportedHeadError(
            f"{type(output_layer).__name__} is a value head (one output per token), but fused log-probs need an LM "
            "head; call a value model without patch_fused_forward."
        )


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


@cache
def _output_class() -> type[Any]:
    try:
        from verl.utils.model import CausalLMOutputForPPO
    except ImportError:  # no veRL here, or one without what it needs itself
        return FusedOutput
    found: type[Any] = CausalLMOutputForPPO
    return found
