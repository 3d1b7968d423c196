"""Where the weight's gradient is written: a new `.grad`, or `main_grad` by Megatron's conventions.

Megatron's data-parallel wrappers hang these attributes on a parameter: `main_grad`, the buffer the optimizer reads;
`grad_added_to_main_grad`, set here so that the wrapper's hook does not add `.grad` again; `zero_out_wgrad` on a tied
weight, whose `.grad` the hook adds nevertheless, so that ours must be zeros. Megatron FSDP marks its parameters with
`__fsdp_param__` and lends the buffer through `get_main_grad()`, holding nothing worth keeping.
"""

from typing import Any

import torch
from torch import Tensor

from mcore_unpatch.compat.fused_head.problem import WeightGradBuffer


def has_main_grad(weight: Any) -> bool:
    """Whether a gradient can be accumulated into this weight's own buffer."""
    return getattr(weight, "main_grad", None) is not None or hasattr(weight, "__fsdp_param__")


def fresh_grad(weight: Tensor) -> WeightGradBuffer:
    """A new gradient tensor, to be returned to autograd."""
    return WeightGradBuffer(torch.empty_like(weight, memory_format=torch.contiguous_format), accumulate=False)


def main_grad(weight: Any) -> WeightGradBuffer:
    """The weight's `main_grad`: added to, except the first time in a backward pass of Megatron FSDP."""
    if not hasattr(weight, "__fsdp_param__"):
        return WeightGradBuffer(weight.main_grad, accumulate=True)
    weight.main_grad = weight.get_main_grad()
    return WeightGradBuffer(weight.main_grad, accumulate=bool(getattr(weight, "grad_added_to_main_grad", False)))


def into_main_grad(weight: Tensor) -> Tensor:
    """The weight for code that multiplies by it directly: its gradient is added to `main_grad`, not to `.grad`."""
    if not (torch.is_grad_enabled() and weight.requires_grad and has_main_grad(weight)):
        return weight
    view: Tensor = _IntoMainGrad.apply(weight)  # type: ignore[no-untyped-call]
    return view


class _IntoMainGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor) -> Tensor:
        ctx.weight = weight  # the parameter itself: only it carries `main_grad`
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor | None:
        target = main_grad(ctx.weight)
        target.buffer.add_(grads[0]) if target.accumulate else target.buffer.copy_(grads[0])
        return announce_main_grad(ctx.weight)


def announce_main_grad(weight: Any) -> Tensor | None:
    """Mark `main_grad` as written; return the placeholder for `.grad` that makes the wrapper's hooks run."""
    if not hasattr(weight, "grad_added_to_main_grad"):
        return None
    weight.grad_added_to_main_grad = True
    return torch.zeros_like(weight) if getattr(weight, "zero_out_wgrad", False) else torch.empty_like(weight)
