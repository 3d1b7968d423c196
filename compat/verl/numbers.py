"""Whose numbers a shim returns: veRL's, or those of Megatron's own logits."""

import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, get_args

from torch import Tensor

Numbers = Literal["verl", "megatron"]

# How the head is read: veRL's kernel neither scales (MuP) nor adds up the ranks' parts of the hidden gradient.
HEAD_OPTIONS: Mapping[Numbers, Mapping[str, Any]] = MappingProxyType(
    {"verl": {"scale_logits": False, "reduce_hidden_grad": False}, "megatron": {}}
)


def check_numbers(numbers: Numbers) -> None:
    """Raise unless `numbers` is one of the two."""
    if numbers not in get_args(Numbers):
        raise ValueError(f'numbers must be "verl" or "megatron", not {numbers!r}.')


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
