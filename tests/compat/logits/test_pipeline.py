"""Lazy logits in a trainer's loss function, called by Megatron's own pipeline schedule; and in FSDP2."""

from typing import Any

import pytest
import torch
from harness import run_on_ranks
from harness.models import Case, batch_of, build_config, build_model, start_world
from harness.oracle import gradients_of
from harness.rounding import assert_agree, assert_close
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel import vocab_parallel_cross_entropy
from megatron.core.transformer.module import Float16Module
from torch import Tensor
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

from mcore_unpatch.compat import DeferredHead, HookError, LazyLogits, attach

MICRO_BATCHES = 3


def _steps(case: Case, model: Any, log_probs_of: Any, forward_only: bool = False) -> list[Tensor]:
    """Losses of the schedule, from a loss function that takes logits and tokens and returns three values."""

    def forward_step(micro_batches: Any, chunk: Any) -> Any:
        inputs = next(micro_batches)
        tokens, mask = inputs["input_ids"], inputs.pop("loss_mask")[:, 1:]
        inputs.pop("labels")

        def loss_function(logits: Any) -> Any:
            log_probs = log_probs_of(logits[:, :-1], tokens[:, 1:])
            loss = -(log_probs * mask).sum()
            return loss, mask.sum().int(), {"loss": loss.detach()}

        return chunk(**inputs, attention_mask=None), loss_function

    model.zero_grad()
    results = get_forward_backward_func()(
        forward_step_func=forward_step,
        data_iterator=iter([batch_of(case, seed=number) for number in range(MICRO_BATCHES)]),
        model=model,
        num_microbatches=MICRO_BATCHES,
        seq_length=case.sequence,
        micro_batch_size=case.batch,
        forward_only=forward_only,
    )
    return [result["loss"] for result in results]


def _from_real_logits(logits: Tensor, tokens: Tensor) -> Tensor:
    loss: Tensor = vocab_parallel_cross_entropy(
        logits.transpose(0, 1).float().contiguous().clone(), tokens.t().contiguous()
    )
    return -loss.t()


def _from_lazy_logits(logits: LazyLogits, tokens: Tensor) -> Tensor:
    log_probs: Tensor = checkpoint(lambda z: z.log_probs(tokens), logits, use_reentrant=False)
    return log_probs + 0 * logits.entropy() + 0 * logits.sum()


def _agrees(case: Case) -> None:
    start_world(case)
    model: Any = build_model(case)
    if case.dtype == torch.bfloat16:
        model = Float16Module(build_config(case), model)
    theirs = _steps(case, model, _from_real_logits)
    expected = gradients_of(model)
    with attach(model, DeferredHead()):
        ours = _steps(case, model, _from_lazy_logits)
        gradients = gradients_of(model)
        alone = _steps(case, model, _from_lazy_logits, forward_only=True)
    for found in (ours, alone):
        for mine, other in zip(found, theirs, strict=True):
            assert_close(mine, other, case.dtype)
    assert_agree(gradients, expected, case.dtype)
    assert any(gradient.abs().max() > 0 for gradient in expected.values())


CASES = [
    Case(pp=2),
    Case(pp=2, tp=2, sequence_parallel=True, tied=True),
    Case(pp=2, hybrid=True),
    Case(pp=2, dtype=torch.bfloat16),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_schedule_gives_the_losses_and_gradients_of_real_logits(release: str, case: Case) -> None:
    run_on_ranks(release, case.ranks, _agrees, case)


def _fully_sharded(case: Case) -> None:
    start_world(case)
    inputs = {**batch_of(case), "attention_mask": None}
    labels = inputs.pop("labels")
    model = build_model(case)
    logits = model(**inputs)
    torch.autograd.backward(logits.log_softmax(-1).gather(-1, labels[..., None]).sum())
    whole = fully_shard(build_model(case))
    with attach(whole, DeferredHead()):
        torch.autograd.backward(whole(**inputs).log_probs(labels).sum())
    found = {name: parameter.grad.full_tensor() for name, parameter in whole.named_parameters()}
    assert_agree(found, gradients_of(model))
    always = fully_shard(build_model(case), reshard_after_forward=True)
    with attach(always, DeferredHead()):
        logits = always(**inputs)
    with pytest.raises(HookError, match="freed after the forward"):
        logits.log_probs(labels)


def test_fully_sharded_models_get_their_gradients(release: str) -> None:
    run_on_ranks(release, 2, _fully_sharded, Case(dp=2))
