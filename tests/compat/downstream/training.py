"""Twenty steps of a policy-like loss from the same seed, with log-probs and entropy from a path of one's choice."""

from collections.abc import Callable
from typing import Any

import torch
from harness.models import Case, batch_of, build_model
from torch import Tensor

STEPS = 20
TEMPERATURE = 0.8
Path = Callable[[Any, dict[str, Tensor]], dict[str, Tensor]]


def batch_at(case: Case, number: int, device: torch.device) -> dict[str, Tensor]:
    """The batch of one step, every token real."""
    batch = {name: value.to(device) for name, value in batch_of(case, seed=number).items()}
    return batch | {"attention_mask": torch.ones_like(batch["input_ids"], dtype=torch.bool)}


def train(case: Case, path: Path, device: torch.device) -> list[float]:
    """The loss of every step: a clipped policy ratio, a little likelihood, an entropy bonus."""
    torch.manual_seed(0)
    model = build_model(case).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for number in range(STEPS):
        batch = batch_at(case, number, device)
        out = path(model, batch)
        advantage = torch.randn(out["log_probs"].shape, generator=torch.Generator().manual_seed(number)).to(device)
        ratio = (out["log_probs"] - out["log_probs"].detach() + 0.05 * advantage).exp()
        policy = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        loss = (policy - 0.1 * out["log_probs"] - 0.01 * out["entropy"]).mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses


def from_logits(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """What a caller makes of logits `[b, s, vocab]`."""
    log_softmax = (logits.float() / TEMPERATURE).log_softmax(-1)
    return {
        "log_probs": log_softmax.gather(-1, labels[..., None]).squeeze(-1),
        "entropy": -(log_softmax.exp() * log_softmax).sum(-1),
    }
