"""Lazy logits in a trainer's loss function, called by Megatron's own pipeline schedule; and in FSDP2."""

from typing import Any

import pytest
import torch
from harness import on_ranks
from harness.attention import Norm
from harness.models import Case, batch_of, build_config, build_model, layer_spec
from harness.oracle import gradients_of
from harness.rounding import assert_agree, assert_close
from harness.worlds import lay_out
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel import vocab_parallel_cross_entropy
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from torch import Tensor
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

from mcore_unpatch.compat import DeferredHead, HookError, LazyLogits, attach

MICRO_BATCHES = 4


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
    data = [iter([batch_of(case, seed=number) for number in range(MICRO_BATCHES)]) for _ in range(2)]
    results = get_forward_backward_func()(
        forward_step_func=forward_step,
        data_iterator=data if isinstance(model, torch.nn.ModuleList) else data[0],
        model=list(model) if isinstance(model, torch.nn.ModuleList) else model,
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


CASES = [
    Case(pp=2),
    Case(pp=2, tp=2, sequence_parallel=True, tied=True),
    Case(pp=2, hybrid=True),
    Case(pp=2, dtype=torch.bfloat16),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@on_ranks
def test_the_schedule_gives_the_losses_and_gradients_of_real_logits(case: Case) -> None:
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
    assert_agree(gradients, expected, case.dtype, stores=MICRO_BATCHES)
    assert any(gradient.abs().max() > 0 for gradient in expected.values())


@on_ranks(Case(dp=2))
def test_fully_sharded_models_get_their_gradients(case: Case, inputs: Any) -> None:
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


@on_ranks(Case(pp=2))
def test_the_interleaved_schedule(case: Case) -> None:
    """Two chunks on each of two ranks, in Megatron's interleaved schedule; only the last chunk has a head."""
    lay_out(pipeline_model_parallel_size=case.pp, virtual_pipeline_model_parallel_size=2)
    model_parallel_cuda_manual_seed(7, force_reset_rng=True)
    config = build_config(case)
    config.num_layers, config.virtual_pipeline_model_parallel_size = 4, 2
    config.deallocate_pipeline_outputs = True
    chunks = torch.nn.ModuleList()
    for stage in range(2):
        torch.manual_seed(99 + stage)
        parallel_state.set_virtual_pipeline_model_parallel_rank(stage)
        ends = {
            "pre_process": parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=stage),
            "post_process": parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=stage),
        }
        block = TransformerBlockSubmodules(layer_specs=[layer_spec()], layer_norm=Norm)
        chunks.append(
            GPTModel(config, block, case.vocab, case.sequence, position_embedding_type="rope", vp_stage=stage, **ends)
        )
    theirs = _steps(case, chunks, _from_real_logits)
    expected = gradients_of(chunks)
    with attach(list(chunks), DeferredHead()):
        ours = _steps(case, chunks, _from_lazy_logits)
    for mine, other in zip(ours, theirs, strict=True):
        assert_close(mine, other)
    assert_agree(gradients_of(chunks), expected)
    assert any(gradient.abs().max() > 0 for gradient in expected.values())
