"""The truth a processor is held to: the logits of Megatron's own default path, and log-softmax in float64."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper
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
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


def main_logits(model: Any, inputs: dict[str, Any]) -> Tensor:
    """`[s, b, vocab / tp]`: what the default path makes of `inputs`, after MuP scaling."""
    caught: list[Tensor] = []
    # A copy: Megatron's cross-entropy turns fp32 logits into probabilities in place.
    handle = model.output_layer.register_forward_hook(lambda layer, args, output: caught.append(output[0].clone()))
    try:
        model(**inputs)
    finally:
        handle.remove()
    return model._scale_logits(caught[-1])  # MTP layers come first, the main output last


def whole_logits(shard: Tensor) -> Tensor:
    """The logits `[..., vocab]` of all tensor-parallel ranks, without gradient."""
    group = parallel_state.get_tensor_model_parallel_group()
    parts = [torch.empty_like(shard) for _ in range(group.size())]
    torch.distributed.all_gather(parts, shard.detach().contiguous(), group=group)
    return torch.cat(parts, -1)


def backward_from(logits: Tensor, gradient: Tensor) -> None:
    """Pull the gradient `[b, s, vocab]` of whole logits back through this rank's `[s, b, vocab / tp]`."""
    group = parallel_state.get_tensor_model_parallel_group()
    shard = gradient.chunk(group.size(), -1)[group.rank()].transpose(0, 1)
    torch.autograd.backward(logits, shard.to(logits.dtype))


def mtp_logged() -> dict[str, Tensor]:
    """What Megatron has logged of the MTP loss, which is forgotten."""
    logged = {name: one.detach().clone() for name, one in MTPLossLoggingHelper.tracker.items() if torch.is_tensor(one)}
    MTPLossLoggingHelper.tracker.clear()
    return logged


def default_path(model: Any, inputs: dict[str, Any], labels: Tensor, temperature: float, loss_of: Loss) -> Result:
    """Log-probs and entropy of `labels` `[b, s]` from the default logits, and all gradients of `loss_of` them."""
    model.zero_grad()
    logits = main_logits(model, inputs)
    whole = whole_logits(logits).transpose(0, 1).double().requires_grad_()  # [b, s, vocab]
    log_softmax = (whole / temperature).log_softmax(-1)
    known = labels != -100
    log_probs = log_softmax.gather(-1, labels.where(known, 0)[..., None]).squeeze(-1) * known
    entropy = -(log_softmax.exp() * log_softmax).sum(-1)
    loss = loss_of(log_probs, entropy)
    (gradient,) = torch.autograd.grad(loss, whole)
    backward_from(logits, gradient)
    return Result(log_probs.detach(), entropy.detach(), loss.detach(), gradients_of(model))


def assert_no_worse(ours: Result, default: Result, truth: Result, dtype: torch.dtype) -> None:
    """Ours is the float64 truth but for what the default path errs too, and for rounding."""
    for part in (Result.values, Result.named_gradients):
        assert_agree(part(ours), part(truth), dtype, plain=part(default))
