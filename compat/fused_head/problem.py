"""The interface between the operator and its backends: what a backend receives and what it returns.

A backend knows one rank's shard and nothing of masks, ignored labels, process groups or `main_grad`: it turns a
`Problem` into `RowStats`, and later `RowGrads` into the gradients of hidden states and weight.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

# Stands for "no logit": its exponential is 0, and, unlike -inf, 0 times it is 0 and not NaN.
NO_LOGIT = -1e30
_Value = TypeVar("_Value")


def math_dtype(weight: Tensor) -> torch.dtype:
    """The dtype of softmax, sums and outputs: float32, or float64 for a float64 weight."""
    return torch.float64 if weight.dtype == torch.float64 else torch.float32


def needed(value: _Value | None) -> _Value:
    """What is there because it was asked for."""
    assert value is not None
    return value


@dataclass(frozen=True, kw_only=True)
class Query:
    """What is asked of the rows of one shard of the vocabulary."""

    rows: Tensor | None = None  # [rows] the tokens to compute, all when None
    chosen: Tensor | None = None  # [rows, k] columns of tokens; outside `0 <= column < columns` it is not this shard's
    labelled: bool = False  # whether the first of them is the label
    scale: float | Tensor = 1.0  # a tensor is [rows, 1]
    columns: int | Tensor  # the first so many columns are vocabulary; a 0-dim tensor where only the device knows
    entropy: bool = False
    squares: bool = False
    topk: int = 0
    tile_bytes: int
    keep_bytes: int = 0  # what the forward may hold for the backward; 0 where no backward follows
    batch_invariant: bool = False
    keep_mask: Tensor | None = None  # [tokens, shard] bool: the columns that take part, and the label's; all when None
    moments: bool = False


@dataclass(frozen=True)
class Problem(Query):
    """Rows of hidden states against one shard of the vocabulary: `logits = hidden[rows] @ weight.T * scale`."""

    hidden: Tensor  # [tokens, h], cast to the weight's dtype before the product
    weight: Tensor  # [shard, h]

    @property
    def row_count(self) -> int:
        """How many rows are computed."""
        return (self.hidden if self.rows is None else self.rows).shape[0]


@dataclass(frozen=True)
class RowStats:
    """Per row, over the columns of one shard; `z` is a logit."""

    row_max: Tensor  # [rows] max z
    sum_exp: Tensor  # [rows] sum exp(z - row_max)
    sum_exp_z: Tensor | None  # [rows] sum exp(z - row_max) * (z - row_max), for the entropy
    sum_exp_squared: Tensor | None  # [rows] sum exp(z - row_max)^2
    chosen: Tensor | None  # [rows, k] z of the chosen columns, 0 where they are not this shard's
    topk_logits: Tensor | None  # [rows, k] descending, NO_LOGIT beyond the shard's columns
    topk_columns: Tensor | None  # [rows, k]
    kept: tuple[Tensor, ...] = ()  # what this backend's backward uses up instead of making it again
    moments: Tensor | None = None  # [4, rows] of the columns that take part: min z, sum z, sum z^2, how many


@dataclass(frozen=True)
class RowGrads:
    """The gradient of a logit: `p * (softmax + entropy * log p + squares * p)`, and more at the chosen columns.

    The log-sum-exp stands in two terms, `lse = row_max + log_sum`, and `log p = z - row_max - log_sum`: where logits
    are large, the sum of the two has lost the digits that `z - row_max` keeps.
    """

    row_max: Tensor  # [rows] over the whole vocabulary
    log_sum: Tensor  # [rows] over the whole vocabulary
    softmax_coefficient: Tensor  # [rows]
    entropy_coefficient: Tensor | None  # [rows]
    squares_coefficient: Tensor | None  # [rows]
    target_coefficients: Tensor | None  # [rows, k] one column may stand there several times: all are added up
    target_columns: Tensor | None  # [rows, k] as `Problem.chosen`: those outside are not this shard's
    target_logprobs: Tensor | None  # [rows, k] `log p` there, as the forward gave it
    kept: tuple[Tensor, ...] = ()  # `RowStats.kept`, the first time


@dataclass(frozen=True)
class WeightGradBuffer:
    """Where the weight's gradient goes: `[shard, h]`, added to what is there or written over it."""

    buffer: Tensor
    accumulate: bool


TakeGrad = Callable[[Tensor], None] | None  # None where a gradient is not needed
GradBuffer = WeightGradBuffer | None


class Backend(Protocol):
    """The two passes over a shard. Neither waits for the device, and only `hidden_grad` may communicate."""

    def forward(self, problem: Problem) -> RowStats:
        """One pass over the shard's columns."""

    def backward(self, problem: Problem, grads: RowGrads, hidden_grad: TakeGrad, weight_grad: GradBuffer) -> None:
        """Fill `weight_grad`; pass this shard's part of the rows' gradient to `hidden_grad`, once and early.

        That part is `[rows, h]` in the math dtype and must not be shared: the shards are summed in it while the backend
        finishes the weight's gradient.
        """
