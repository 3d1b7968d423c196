"""Megatron's own schedule, and steps of its distributed optimizer, in turn or overlapped with the forward."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer.module import Float16Module
from torch import Tensor

from harness.models import Case, build_config, build_model

STEPS = 4


def with_an_optimizer(case: Case, model: Any, overlap: bool) -> tuple[Any, Any]:
    """The model under Megatron's wrapper, and its distributed optimizer.

    Overlapped, the head is in a bucket of its own, gathered last.
    """
    config, half = build_config(case), case.dtype == torch.bfloat16
    wrapping = DistributedDataParallelConfig(
        use_distributed_optimizer=True,
        overlap_grad_reduce=overlap,
        overlap_param_gather=overlap,
        bucket_size=1 if overlap else None,
    )
    ddp = DistributedDataParallel(config, wrapping, Float16Module(config, model) if half else model)
    adam = OptimizerConfig(
        optimizer="adam",
        lr=0.01,
        use_distributed_optimizer=True,
        overlap_param_gather=overlap,
        clip_grad=1.0,
        bf16=half,
        params_dtype=case.dtype,
    )
    return ddp, get_megatron_optimizer(adam, [ddp])


def steps(ddp: Any, optimizer: Any, loss_of: Callable[[Any], Tensor]) -> Tensor:
    """The loss of each step, and the norm of its gradients: `[steps, 2]`."""
    seen = []
    for _ in range(STEPS):
        ddp.zero_grad_buffer()
        optimizer.zero_grad()
        loss = loss_of(ddp)
        torch.autograd.backward(loss)
        finalize_model_grads([ddp])
        _, norm, _ = optimizer.step()
        seen.append(torch.stack([loss.detach(), torch.as_tensor(norm)]))
    return torch.stack(seen)


def under_the_optimizer(case: Case, loss_of: Callable[[Any], Tensor], *, overlap: bool) -> Tensor:
    """The losses of a new model."""
    return steps(*with_an_optimizer(case, build_model(case), overlap), loss_of)[:, 0]


def scheduled(
    case: Case, model: Any, forward_step: Callable[..., Any], calls: Sequence[Any], forward_only: bool = False
) -> list[Any]:
    """What Megatron's schedule gives for these micro-batches; the gradients are left on the model."""
    model.zero_grad()
    results: list[Any] = get_forward_backward_func()(
        forward_step_func=forward_step,
        data_iterator=iter(calls),
        model=model,
        num_microbatches=len(calls),
        seq_length=case.sequence,
        micro_batch_size=case.batch,
        forward_only=forward_only,
    )
    return results
