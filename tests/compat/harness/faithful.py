"""The one sentence of the matrix: a processor on the real model gives what Megatron's default path gives."""

from dataclasses import replace
from typing import Any

import torch
from megatron.core import parallel_state
from torch import Tensor

from harness.models import Case, batch_of, build_model, start_world
from harness.oracle import Result, assert_no_worse, default_path, gradients_of
from harness.packing import Packer
from mcore_unpatch.compat import LogProbsAndEntropy, call_with_processor
from mcore_unpatch.compat.packing import zigzag_split

TEMPERATURE = 1.3


def inputs_for(case: Case, seed: int = 0) -> dict[str, Any]:
    """This rank's arguments for the model, whole, zigzag-split, or packed, as the case says."""
    batch = batch_of(case, seed)
    cp, rank = case.cp, parallel_state.get_context_parallel_rank()
    if not case.packed:
        local = {name: zigzag_split(value, cp, rank).contiguous() for name, value in batch.items()}
        return {**local, "attention_mask": None}
    lengths = torch.tensor([case.sequence - 5 * i for i in range(case.batch)])
    real = torch.arange(case.sequence) < lengths[:, None]
    packer = Packer(real, tp_size=case.tp, cp_size=cp, cp_rank=rank)
    row = {name: packer.pack(value) for name, value in batch.items() if name != "position_ids"}
    positions = packer.position_ids
    params = packer.packed_seq_params()
    return {**row, "position_ids": positions, "packed_seq_params": params, "attention_mask": None}


def loss_weights(shape: torch.Size) -> tuple[Tensor, Tensor]:
    """Fixed weights for log-probs and entropy, so that every position and both results matter to the gradient."""
    generator = torch.Generator().manual_seed(3)
    a, b = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
    return a, b


def weighted(log_probs: Tensor, entropy: Tensor) -> Tensor:
    a, b = loss_weights(log_probs.shape)
    return (a.to(log_probs.dtype) * log_probs + 0.3 * b.to(entropy.dtype) * entropy).sum() / log_probs.numel()


def through_the_hook(model: Any, inputs: dict[str, Any], **options: Any) -> Result:
    """The same loss with log-probs and entropy computed in the hook."""
    model.zero_grad()
    out = call_with_processor(model, LogProbsAndEntropy(temperature=TEMPERATURE, **options), **inputs)
    loss = weighted(out.log_probs, out.entropy)
    torch.autograd.backward(loss)
    return Result(out.log_probs.detach(), out.entropy.detach(), loss.detach(), gradients_of(model))


def in_float64(case: Case, model: Any) -> Any:
    """A second model of `case` with the same weights, in float64."""
    twin = build_model(case)
    twin.load_state_dict(model.state_dict())
    return twin.double()


def lowest_dtype(case: Case) -> torch.dtype:
    """Of body and head."""
    return min(case.dtype, case.head_dtype or case.dtype, key=lambda dtype: dtype.itemsize)


def with_a_default_path(case: Case, model: Any) -> Any:
    """The model itself. Where body and head differ Megatron's layer cannot multiply: a twin in the lower dtype."""
    if case.head_dtype is None:
        return model
    twin = build_model(replace(case, dtype=lowest_dtype(case), head_dtype=None))
    twin.load_state_dict(model.state_dict())
    return twin


def is_faithful(case: Case) -> None:
    """Run on every rank of `case`: hook, default path and float64 truth on the same weights and tokens."""
    start_world(case)
    model = build_model(case)
    inputs = inputs_for(case)
    truth = default_path(in_float64(case, model), inputs, inputs["labels"], TEMPERATURE, weighted)
    ours = through_the_hook(model, inputs)
    default = default_path(with_a_default_path(case, model), inputs, inputs["labels"], TEMPERATURE, weighted)
    assert_no_worse(ours, default, truth, lowest_dtype(case))
    assert any(gradient.abs().max() > 1e-6 for gradient in truth.gradients.values())
