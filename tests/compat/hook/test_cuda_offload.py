"""On a GPU: what docs/recipes.md says of the optimizer's memory. Skipped where there is none."""

from typing import Any

import pytest
import torch
from harness.gpu import CASE, needs_gpu
from harness.models import batch_of, build_config, build_model
from harness.pages import from_page
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.transformer.module import Float16Module
from torch import Tensor

STEPS, TRIP = 4, 2


def _trained(dtype: torch.dtype, distributed: bool, *, trip: bool, weights: bool) -> tuple[list[Tensor], list[int]]:
    """The weights after some steps of Adam, and the bytes in use before, during and after the trip to the CPU."""
    torch.manual_seed(1)
    bf16, config = dtype is torch.bfloat16, build_config(CASE)
    config.bf16, config.params_dtype = bf16, dtype
    model: Any = build_model(CASE).cuda()
    model = Float16Module(config, model) if bf16 else model
    chunk = DistributedDataParallel(
        config, DistributedDataParallelConfig(use_distributed_optimizer=distributed, overlap_grad_reduce=False), model
    )
    settings = {"bf16": bf16, "params_dtype": dtype, "use_distributed_optimizer": distributed, "clip_grad": 1.0}
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1e-2, **settings), [chunk])
    used = []
    for step in range(STEPS):
        if trip and step == TRIP:
            used.append(torch.cuda.memory_allocated())
            from_page("recipes.md", "offload")([chunk], optimizer, weights=weights)
            used.append(torch.cuda.memory_allocated())
            from_page("recipes.md", "restore")([chunk], optimizer, weights=weights)
            used.append(torch.cuda.memory_allocated())
        chunk.zero_grad_buffer()
        optimizer.zero_grad()
        batch = {name: value.cuda() for name, value in batch_of(CASE, step).items()}
        call = {name: batch[name] for name in ("input_ids", "position_ids", "labels")}
        chunk(**call, attention_mask=None).mean().backward()
        finalize_model_grads([chunk])
        optimizer.step()
    return [one.detach().float().cpu() for one in chunk.parameters()], used


@needs_gpu
@pytest.mark.parametrize(
    ("dtype", "distributed"), [(torch.bfloat16, True), (torch.float32, True), (torch.bfloat16, False)]
)
def test_training_goes_on_as_if_nothing_had_moved(world: None, dtype: torch.dtype, distributed: bool) -> None:
    expected, _ = _trained(dtype, distributed, trip=False, weights=False)
    for weights in (False, True) if distributed else (False,):
        found, (before, during, _) = _trained(dtype, distributed, trip=True, weights=weights)
        assert during < before
        assert all(map(torch.equal, found, expected))
