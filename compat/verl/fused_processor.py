"""Log-probs and entropy in veRL's result object: with its numbers, or with those of Megatron's own logits."""

import warnings
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, get_args

from megatron.core.config_logger import has_config_logger_enabled, log_config_to_disk
from torch import Tensor

from mcore_unpatch.compat.fused_head.checks import check_choice
from mcore_unpatch.compat.hook.call import HookCall, register_results
from mcore_unpatch.compat.hook.head import HeadOptions, head_pass

Numbers = Literal["verl", "megatron"]

# How the head is read: veRL's kernel neither scales (MuP) nor adds up the ranks' parts of the hidden gradient.
HEAD_OPTIONS: Mapping[Numbers, Mapping[str, Any]] = MappingProxyType(
    {"verl": {"scale_logits": False, "reduce_hidden_grad": False}, "megatron": {}}
)


def check_numbers(numbers: Numbers) -> None:
    """Raise unless `numbers` is one of the two."""
    check_choice("numbers", numbers, *get_args(Numbers))


def warn_where_kept(shim: str, numbers: Numbers, config: Any, *, logits_alone: bool = False) -> None:
    """Warn if veRL's numbers differ from Megatron's for a model of this configuration."""
    if numbers != "verl":
        return
    kept = []
    if getattr(config, "use_mup", False):
        kept.append("the logits are not scaled by MuP's factor")
    ranks = config.tensor_model_parallel_size
    if ranks > 1 and not config.sequence_parallel and not logits_alone:
        kept.append(
            f"without sequence parallelism, hidden-state gradients are not summed over the {ranks} "
            "tensor-parallel ranks"
        )
    if kept:
        text = f"{shim} keeps veRL's numbers: {'; '.join(kept)}. Pass numbers=\"megatron\" for Megatron's."
        warnings.warn(text, UserWarning, stacklevel=3)


def several_rows(labels: Tensor, instead: str) -> ValueError:
    """The error for a call with veRL's numbers in a shape for which its kernel is wrong."""
    return ValueError(
        f"labels {list(labels.shape)}: with several rows, veRL's kernel pairs labels with the hidden states of other "
        f"tokens; pass one packed row, or {instead}."
    )


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
        out = head_pass(call, self, {"logprobs", "entropy"} if self.entropy else {"logprobs"})
        if has_config_logger_enabled(call.config):
            inputs = {name: getattr(call, name) for name in _LOGGED_INPUTS}
            logged = OrderedDict(**inputs, logprobs=out.logprobs, entropy=out.entropy)
            log_config_to_disk(call.config, logged, prefix="input_and_logits")
        results = {"log_probs": out.logprobs, "entropy": out.entropy}
        if self.flat:
            results = {name: value if value is None else value.flatten() for name, value in results.items()}
        return _output_class()(hidden_states=call.hidden_states, **results)


_LOGGED_INPUTS = ("input_ids", "position_ids", "attention_mask", "decoder_input")  # as Megatron logs them with logits


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


register_results(FusedOutput)


@cache
def _output_class() -> type[Any]:
    try:
        from verl.utils.model import CausalLMOutputForPPO
    except ImportError:  # no veRL here, or one without what it needs itself
        return FusedOutput
    found: type[Any] = CausalLMOutputForPPO
    return found
