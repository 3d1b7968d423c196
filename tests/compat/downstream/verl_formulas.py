"""What veRL's kernel computes, from whole logits, and the gradients of a loss of both of its results."""

from collections.abc import Callable
from typing import Any

import torch
from fused_head.oracle import grad_of
from torch import Tensor


def formulas(
    hidden: Tensor, weight: Tensor, labels: Tensor, temperature: float = 1.0, reduction: str = "none"
) -> tuple[Tensor, Tensor]:
    """What veRL's kernel computes, from whole logits."""
    logits = hidden.reshape(-1, hidden.shape[-1]) @ weight.t() / temperature
    flat = labels.reshape(-1)
    known = (flat >= 0) & (flat < len(weight))
    of_label = logits.gather(1, flat.where(known, 0)[:, None])[:, 0].where(known, 0)
    norm = logits.logsumexp(1)
    log_probs = of_label - norm
    reduced = {"none": log_probs, "sum": log_probs.sum(), "mean": log_probs.sum() / len(log_probs)}[reduction]
    return reduced, norm - (logits.softmax(1) * logits).sum(1)


def call(
    function: Callable[..., tuple[Tensor, Tensor]], hidden: Tensor, weight: Tensor, *args: Any
) -> dict[str, Tensor]:
    """Results and gradients of a loss of both."""
    x, w = (value.detach().clone().requires_grad_() for value in (hidden, weight))
    log_probs, entropy = function(x, w, *args)
    factors = torch.linspace(-1, 2, entropy.numel(), dtype=torch.float64).to(entropy)
    (log_probs * (factors if log_probs.dim() else 0.7)).sum().add((entropy * factors.flip(0)).sum()).backward()
    found = {"logprobs": log_probs.detach(), "entropy": entropy.detach()}
    return found | {"hidden.grad": grad_of(x), "weight.grad": grad_of(w)}
