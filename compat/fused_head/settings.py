"""The arguments of a pass over the vocabulary: what is asked of its rows, and how the head is read."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict, get_args

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from mcore_unpatch.compat.fused_head.checks import check_choice, check_count, check_group, check_number
from mcore_unpatch.compat.fused_head.weight_grad import has_main_grad

OutOfVocabGrad = Literal["zero", "legacy"]
BackendName = Literal["auto", "torch", "triton"]
KeepBytes = int | Literal["auto"] | None


@dataclass(frozen=True, kw_only=True)
class VocabQuery:
    """What is asked of the rows; every tensor is shaped like the tokens `[...]`, or has a dimension more."""

    labels: Tensor | None = None
    temperature: float | Tensor = 1.0
    mask: Tensor | None = None
    mask_count: int | None = None
    entropy: bool = False
    topk: int = 0
    token_ids: Tensor | None = None
    sum_pi_squared: bool = False
    keep_mask: Tensor | None = None
    logit_stats: bool = False


@dataclass(frozen=True, kw_only=True)
class PassSettings:
    """How the head is read: the options of `linear_logprob` that a processor takes and passes on as they are."""

    vocab_size: int | None = None
    ignore_index: int | None = -100
    out_of_vocab_grad: OutOfVocabGrad = "zero"
    backend: BackendName = "auto"
    tile_bytes: int | None = None
    keep_bytes: KeepBytes = None
    batch_invariant: bool = False

    def __post_init__(self) -> None:
        check_choice("backend", self.backend, *get_args(BackendName))
        check_choice("out_of_vocab_grad", self.out_of_vocab_grad, *get_args(OutOfVocabGrad))
        check_count("ignore_index", self.ignore_index)
        for name in ("vocab_size", "tile_bytes"):
            check_count(name, getattr(self, name), 1)
        if self.keep_bytes != "auto":
            check_count("keep_bytes", self.keep_bytes, 0)

    def of_head(self, **shard: Any) -> "HeadSettings":
        """These settings, and those of one head's shards."""
        return HeadSettings(**{name: getattr(self, name) for name in _SETTINGS}, **shard)


@dataclass(frozen=True, kw_only=True)
class HeadSettings(PassSettings):
    """The same for one head: its factor, who holds its shards, and where gradients go."""

    logit_scale: float = 1.0
    tp_group: ProcessGroup | None = None
    reduce_hidden_grad: bool = True
    fuse_main_grad: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("logit_scale", self.logit_scale, positive=False)
        check_group("tp_group", self.tp_group)

    def check_weight(self, weight: Tensor) -> None:
        """Raise unless the gradient of this weight can go where it is to go."""
        will_have_grad = torch.is_grad_enabled() and weight.requires_grad
        if self.fuse_main_grad and will_have_grad and not has_main_grad(weight):
            raise ValueError(
                "fuse_main_grad: expected a weight with main_grad (a parameter under Megatron's DDP or FSDP), got none"
            )


class _OfRows(TypedDict, total=False):
    mask: Tensor | None
    mask_count: int | None
    entropy: bool


class _More(TypedDict, total=False):
    topk: int
    token_ids: Tensor | None
    sum_pi_squared: bool
    keep_mask: Tensor | None
    logit_stats: bool


class ComputeKeywords(_OfRows, _More, total=False):
    """The keywords of `LazyLogits.compute`."""


class LogprobKeywords(_OfRows, total=False):
    """The keywords of `linear_logprob`."""

    temperature: float | Tensor
    logit_scale: float
    vocab_size: int | None
    tp_group: ProcessGroup | None
    reduce_hidden_grad: bool
    fuse_main_grad: bool
    ignore_index: int | None
    out_of_vocab_grad: OutOfVocabGrad
    backend: BackendName
    tile_bytes: int | None
    keep_bytes: KeepBytes
    batch_invariant: bool


class PassKeywords(LogprobKeywords, _More, total=False):
    """The keywords of `vocab_pass`: all of `VocabQuery` and `HeadSettings`."""


_SETTINGS = tuple(f.name for f in fields(PassSettings))
_QUERY = frozenset(f.name for f in fields(VocabQuery))


def sort_keywords(function: Callable[..., Any], known: type, given: Any) -> tuple[dict[str, Any], HeadSettings]:
    """Those of a `VocabQuery`, and the others as settings; raises a TypeError for one that is not `known`."""
    unknown = given.keys() - known.__annotations__.keys()
    if unknown:
        names = ", ".join(known.__annotations__)
        raise TypeError(f"{function.__name__} has no argument {sorted(unknown)[0]!r}; it has {names}")
    asked = {name: value for name, value in given.items() if name in _QUERY}
    return asked, HeadSettings(**{name: value for name, value in given.items() if name not in _QUERY})
