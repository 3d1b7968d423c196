"""Gradient accumulation fusion: who is given the LM head's weight loses none of its gradient, whoever else used it."""

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from harness import on_ranks
from harness.models import Case, batch_of, build_config, build_model
from harness.rounding import assert_agree
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from torch import Tensor

from mcore_unpatch.compat import HeadInputs, TokenLoss, attach, call_with_processor
from mcore_unpatch.compat.skyrl import (
    call_model_with_fused_lm_head,
    from_parallel_hidden_to_entropy_packed_sequences,
    from_parallel_hidden_to_logprobs,
)


def _accumulate(total_input: Tensor, grad_output: Tensor, main_grad: Tensor) -> None:
    """What Apex' CUDA extension does for Megatron's layer; there is none for a CPU."""
    main_grad.add_(grad_output.t().to(main_grad.dtype) @ total_input.to(main_grad.dtype))


def _in_place_of_apex() -> Any:
    extension = SimpleNamespace(wgrad_gemm_accum_fp32=_accumulate, wgrad_gemm_accum_fp16=_accumulate)
    return mock.patch("megatron.core.tensor_parallel.layers.fused_weight_gradient_mlp_cuda", extension, create=True)


def _loss_of_logits(hidden: Tensor, weight: Tensor) -> Tensor:
    return ((hidden.float() @ weight.float().T) ** 2).sum()


def _with_head_inputs(model: Any, inputs: dict[str, Any]) -> Tensor:
    processor = HeadInputs()
    hidden = call_with_processor(model, processor, **{**inputs, "labels": None})
    assert processor.weight is not None
    return _loss_of_logits(hidden, processor.weight)


def _with_skyrl(model: Any, inputs: dict[str, Any]) -> Tensor:
    context: dict[str, Any] = {}
    hidden = call_model_with_fused_lm_head(model, **{**inputs, "labels": None}, output_processor_context=context)
    group = parallel_state.get_tensor_model_parallel_group()
    weight = context["lm_head_weight"]
    log_probs: Tensor = from_parallel_hidden_to_logprobs(hidden, weight, inputs["input_ids"], 0, len(weight), group)
    bounds = torch.tensor([0, hidden[:1].shape[1]])
    _, mine = from_parallel_hidden_to_entropy_packed_sequences(
        hidden[:1], weight, bounds, hidden.shape[1], 5, torch.ones(1, hidden.shape[1]), None, None, group
    )
    return -log_probs.mean() + mine


def _by_megatron(model: Any, inputs: dict[str, Any]) -> Tensor:
    loss: Tensor = model(**inputs)
    return loss.mean()


def _by_our_pass(model: Any, inputs: dict[str, Any]) -> Tensor:
    loss: Tensor = call_with_processor(model, TokenLoss(), **inputs)
    return loss.mean()


STEPS = {
    "head inputs after our pass": (_by_our_pass, _with_head_inputs),
    "head inputs before and after Megatron's loss": (_with_head_inputs, _by_megatron, _with_head_inputs),
    "skyrl after Megatron's loss": (_by_megatron, _with_skyrl),
    "skyrl after head inputs": (_with_head_inputs, _with_skyrl),
    "head inputs alone": (_with_head_inputs,),
}


def _wrapped(case: Case, fused: bool) -> tuple[Any, Any]:
    """A model under Megatron's own data-parallel wrapper."""
    model = build_model(case)
    model.output_layer.gradient_accumulation_fusion = fused
    return model, DistributedDataParallel(build_config(case), DistributedDataParallelConfig(), model)


def _main_gradients(model: Any) -> dict[str, Tensor]:
    return {name: parameter.main_grad.clone() for name, parameter in model.named_parameters()}


def _train(case: Case, steps: str, fused: bool) -> dict[str, Tensor]:
    """One accumulation of several micro-batches."""
    model, wrapped = _wrapped(case, fused)
    for number, step in enumerate(STEPS[steps]):
        torch.autograd.backward(step(wrapped, {**batch_of(case, number), "attention_mask": None}))
    return _main_gradients(model)


ALONE = "head inputs alone"


@pytest.mark.parametrize(
    ("case", "steps"),
    [*((Case(), steps) for steps in STEPS), (Case(mtp=1), ALONE), (Case(mtp=1, hybrid=True), ALONE)],
    ids=str,
)
@on_ranks
def test_the_heads_gradient_is_whole(case: Case, steps: str) -> None:
    with _in_place_of_apex():
        expected, found = (_train(case, steps, fused) for fused in (False, True))
    assert_agree(found, expected)
    assert expected["output_layer.weight"].abs().max() > 1e-4


def _toggled(case: Case, fused: bool) -> dict[str, Tensor]:
    model, wrapped = _wrapped(case, fused)
    on = {"": True}
    processor = HeadInputs()
    attach(wrapped, processor, when=lambda: on[""])
    for number in range(3):
        on[""] = number != 1
        out = wrapped(**{**batch_of(case, number), "attention_mask": None, "labels": None})
        loss = _loss_of_logits(out, processor.weight) if on[""] else (out.float() ** 2).mean()  # type: ignore[arg-type]
        torch.autograd.backward(loss)
    return _main_gradients(model)


@on_ranks
def test_switched_on_and_off_between_micro_batches(case: Case) -> None:
    with _in_place_of_apex():
        assert_agree(_toggled(case, True), _toggled(case, False))
