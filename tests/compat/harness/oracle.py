"""The truth a processor is held to: the logits of Megatron's own default path, and log-softmax in float64.

`default_path` runs the real model as anybody would, with labels (so that MTP adds its loss), catches the logits of the
main call of its output layer, and pulls a given loss of log-probs and entropy back through them. In a float64 copy of
the model that is the truth; in the model's own dtype it is the error that the default path itself makes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from megatron.core import parallel_state
from torch import Tensor

from harness.rounding import assert_agree

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass
class Result:
    """Log-probs and entropy `[b, s]`, the loss made of them, and the gradient of every parameter."""

    log_probs: Tensor
    entropy: Tensor
    loss: Tensor
    gradients: dict[str, Tensor]

    def values(self) -> dict[str, Tensor]:
        return {"log_probs": self.log_probs, "entropy": self.entropy}

    def named_gradients(self) -> dict[str, Tensor]:
        return {f"gradient of {name}": value for name, value in self.gradients.items()}


def gradients_of(model: torch.nn.Module) -> dict[str, Tensor]:
    """The gradient of every parameter, zeros where none arrived."""
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad.detach().clone() for name, p in model.named_parameters()
    }


def main_logits(model: Any, inputs: dict[str, Any]) -> Tensor:
    """`[s, b, vocab / tp]`: what the default path makes of `inputs`, after MuP scaling."""
    caught: list[Tensor] = []
    # A copy: Megatron's cross-entropy turns fp32 logits into probabilities in place.
    handle = model.output_layer.register_forward_hook(lambda layer, args, output: caught.append(output[0].clone()))
    try:
        model(**inputs)
    finally:
        handle.remove()
    logits: Tensor = model._scale_logits(caught[-1])  # MTP layers come first, the main output last
    return logits


def default_path(model: Any, inputs: dict[str, Any], labels: Tensor, temperature: float, loss_of: Loss) -> Result:
    """Log-probs and entropy of `labels` `[b, s]` from the default logits, and all gradients of `loss_of` them."""
    model.zero_grad()
    logits = main_logits(model, inputs)
    group = parallel_state.get_tensor_model_parallel_group()
    parts = [torch.empty_like(logits) for _ in range(group.size())]
    torch.distributed.all_gather(parts, logits.detach().contiguous(), group=group)
    whole = torch.cat(parts, -1).transpose(0, 1).double().requires_grad_()  # [b, s, vocab]
    log_softmax = (whole / temperature).log_softmax(-1)
    known = labels != -100
    log_probs = log_softmax.gather(-1, labels.where(known, 0)[..., None]).squeeze(-1) * known
    entropy = -(log_softmax.exp() * log_softmax).sum(-1)
    loss = loss_of(log_probs, entropy)
    (gradient,) = torch.autograd.grad(loss, whole)
    shard = gradient.chunk(group.size(), -1)[group.rank()].transpose(0, 1)
    torch.autograd.backward(logits, shard.to(logits.dtype))
    return Result(log_probs.detach(), entropy.detach(), loss.detach(), gradients_of(model))


def assert_no_worse(ours: Result, default: Result, truth: Result, dtype: torch.dtype) -> None:
    """Ours is the float64 truth but for what the default path errs too, and for rounding."""
    for part in (Result.values, Result.named_gradients):
        assert_agree(part(ours), part(truth), dtype, plain=part(default))
