"""A run of a model as one value, so that two of them can be held against each other."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from harness.oracle import gradients_of
from harness.rounding import assert_agree, distance, tolerance
from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper
from torch import Tensor


@dataclass
class Run:
    """Results by name, the gradient of every parameter, and what the MTP tracker logged."""

    results: dict[str, Tensor]
    gradients: dict[str, Tensor]
    logged: dict[str, Tensor]

    def over_ranks(self) -> "Run":
        """The same with the gradients of all ranks added up: how tokens are split over ranks then plays no part."""
        total = {name: value.clone() for name, value in self.gradients.items()}
        for value in total.values():
            torch.distributed.all_reduce(value)
        return Run(self.results, total, self.logged)

    def moved(self, other: "Run", name: str) -> float:
        """How far the gradient of the parameter `name` is from the other's, relative to it."""
        return distance(self.gradients[name], other.gradients[name], floor=1e-3)

    def assert_moved(self, other: "Run", name: str, moved: bool = True) -> None:
        """The gradient of the parameter `name` differs from the other's by more than rounding, or does not."""
        if moved:
            assert self.moved(other, name) > 2 * tolerance()
        else:
            assert_agree({name: self.gradients[name]}, {name: other.gradients[name]})


def assert_same(ours: Run, theirs: Run) -> None:
    """All results, gradients and logged values are the same but for rounding."""
    assert_agree(ours.results, theirs.results)
    assert_agree(ours.gradients, theirs.gradients)
    assert_agree(ours.logged, theirs.logged)


def run(model: Any, call: Callable[[], dict[str, Tensor]]) -> Run:
    """Call, weigh every result, go backward."""
    model.zero_grad()
    MTPLossLoggingHelper.tracker.clear()
    results = {
        name: value.values() if value.is_nested else value for name, value in call().items() if value is not None
    }
    losses = []
    for number, value in enumerate(results.values()):
        weights = torch.randn(value.shape, generator=torch.Generator().manual_seed(number))
        losses.append((value * weights.to(value)).sum() / value.numel())
    torch.autograd.backward(losses)
    logged = {
        name: value.detach().clone() for name, value in MTPLossLoggingHelper.tracker.items() if torch.is_tensor(value)
    }
    return Run({name: value.detach().clone() for name, value in results.items()}, gradients_of(model), logged)
