"""Lazy logits asked after the head has changed: an error, however the weights were written."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import run_on_ranks
from harness.faithful import inputs_for
from harness.models import Case, build_config, build_model, start_world
from logits.lazily import lazy
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.transformer.module import Float16Module

from mcore_unpatch.compat import DeferredHead, HookError, attach

CHANGED = "written to after the forward"


def _after_a_step(case: Case, optimizer_name: str, distributed: bool) -> None:
    """Megatron's optimizers hold float32 copies and write the model's 16 bits through `.data`."""
    start_world(case)
    config, model = build_config(case), build_model(case)
    ddp_config = DistributedDataParallelConfig(use_distributed_optimizer=distributed, grad_reduce_in_fp32=True)
    ddp = DistributedDataParallel(config, ddp_config, Float16Module(config, model))
    settings = {"optimizer": optimizer_name, "lr": 0.01, "bf16": True, "params_dtype": torch.bfloat16}
    optimizer = get_megatron_optimizer(OptimizerConfig(**settings, use_distributed_optimizer=distributed), [ddp])
    inputs = inputs_for(case)
    labels = inputs.pop("labels")
    ddp.zero_grad_buffer()
    with attach(ddp, DeferredHead()):
        logits = ddp(**inputs)
    torch.autograd.backward(-logits.log_probs(labels).mean())
    ddp.finish_grad_sync()
    optimizer.step()
    with pytest.raises(HookError, match=CHANGED):
        logits.log_probs(labels)


@pytest.mark.parametrize(("optimizer", "distributed"), [("adam", False), ("sgd", False), ("adam", True)])
def test_a_step_of_megatrons_optimizers(release: str, optimizer: str, distributed: bool) -> None:
    case = Case(dtype=torch.bfloat16, dp=2 if distributed else 1)
    run_on_ranks(release, case.ranks, _after_a_step, case, optimizer, distributed)


def _write_in_place(weight: torch.Tensor) -> None:
    with torch.no_grad():
        weight.mul_(2)


WRITES: list[Callable[[torch.Tensor], Any]] = [
    _write_in_place,
    lambda weight: weight.data.copy_(weight.data * 1.01),
    lambda weight: weight.data.view(-1)[-1:].neg_(),
    lambda weight: weight.detach().numpy().__imul__(1.01),
]


@pytest.mark.parametrize("write", WRITES)
def test_a_write_past_autograd(write: Callable[[torch.Tensor], Any]) -> None:
    logits = lazy()
    write(logits.head.weight)
    asked = (logits.entropy, logits.logits, logits.sum, lambda: logits.kl(logits), logits.detach().entropy)
    for ask in (*asked, lambda: lazy().kl(logits)):
        with pytest.raises(HookError, match=CHANGED):
            ask()


def test_a_step_of_another_model_changes_nothing() -> None:
    logits = lazy()
    before = logits.entropy()
    other = torch.nn.Parameter(torch.ones(3))
    other.grad = torch.ones(3)
    torch.optim.SGD([other], lr=1.0).step()
    assert torch.equal(logits.entropy(), before)


def test_a_head_of_nan_is_no_change() -> None:
    logits = lazy()
    filled = logits.head.weight.detach().fill_(torch.nan)
    again = lazy(weight=filled)
    assert again.entropy().isnan().all()
