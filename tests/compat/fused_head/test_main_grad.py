"""The weight's gradient in Megatron's own buffers: under its real wrapper, and convention by convention."""

from contextlib import nullcontext
from itertools import product
from typing import Any

import pytest
import torch
from fused_head.oracle import Inputs, grad_of, linear_logprob, make_inputs, materialised
from harness import on_ranks
from harness.models import Case
from harness.rounding import assert_agree, assert_close
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor


def parameter(inputs: Inputs, **attributes: Any) -> Any:
    weight = torch.nn.Parameter(inputs.weight.clone())
    for name, value in attributes.items():
        setattr(weight, name, value)
    return weight


def backward(inputs: Inputs, weight: Tensor, **options: Any) -> None:
    hidden = inputs.hidden.clone().requires_grad_()
    logprobs, _ = linear_logprob(hidden, weight, inputs.labels, fuse_main_grad=True, **options)
    (logprobs * inputs.logprob_grad).sum().backward()


def true_weight_grad(inputs: Inputs, **options: Any) -> Tensor:
    exact = inputs.in_float64()
    weight = exact.weight.requires_grad_()
    logprobs, _ = materialised(exact.hidden, weight, inputs.labels, **options)
    (logprobs * inputs.logprob_grad).sum().backward()
    return grad_of(weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("buffer", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tile_bytes", [None, 20_000])
def test_gradients_are_added_to_main_grad(dtype: torch.dtype, buffer: torch.dtype, tile_bytes: int | None) -> None:
    """Twice, as two micro-batches do; a float32 buffer sees no rounding to the weight's 16 bits."""
    inputs = make_inputs(30, 16, 70, dtype)
    weight = parameter(inputs, main_grad=torch.ones(70, 16, dtype=buffer))
    for _ in range(2):
        backward(inputs, weight, tile_bytes=tile_bytes)
    assert weight.grad is None
    assert_close(weight.main_grad, 1 + 2 * true_weight_grad(inputs), buffer)


def test_padding_rows_keep_what_was_there() -> None:
    inputs = make_inputs(30, 16, 70)
    weight = parameter(inputs, main_grad=torch.ones(70, 16))
    backward(inputs, weight, vocab_size=50, mask=torch.arange(30) % 2)
    assert torch.equal(weight.main_grad[50:], torch.ones(20, 16))
    truth = true_weight_grad(inputs, vocab_size=50, mask=torch.arange(30) % 2)
    assert_close(weight.main_grad, 1 + truth)


@pytest.mark.parametrize("tied", [False, True])
def test_the_wrappers_hook_is_told(tied: bool) -> None:
    """A stand-in `.grad` makes the hook run, and is zeros where the hook adds it (a tied weight)."""
    inputs = make_inputs(6, 16, 70)
    weight = parameter(inputs, main_grad=torch.zeros(70, 16), grad_added_to_main_grad=False, zero_out_wgrad=tied)
    backward(inputs, weight)
    assert weight.grad_added_to_main_grad
    assert weight.grad.shape == weight.shape
    assert not tied or not weight.grad.any()


@pytest.mark.parametrize("rows", [0, 6])
def test_the_hook_runs_for_a_micro_batch_without_rows(rows: int) -> None:
    inputs = make_inputs(6, 16, 70)
    weight = parameter(inputs, main_grad=torch.ones(70, 16), grad_added_to_main_grad=False)
    backward(inputs, weight, mask=torch.arange(6) < rows)
    assert weight.grad is not None
    assert torch.equal(weight.main_grad, torch.ones(70, 16)) == (rows == 0)


def test_megatron_fsdp_lends_a_buffer_that_holds_nothing() -> None:
    """Its first use in a backward pass writes over it, a second one in the same pass adds."""
    inputs = make_inputs(6, 16, 70)
    lent = torch.full((70, 16), 1e9)
    weight = parameter(inputs, __fsdp_param__=True, grad_added_to_main_grad=False, get_main_grad=lambda: lent)
    truth = true_weight_grad(inputs)
    for uses in (1, 2):
        backward(inputs, weight)
        assert weight.main_grad is lent
        assert_close(lent, uses * truth)
    del weight.grad_added_to_main_grad  # nobody counts the uses
    backward(inputs, weight)
    assert_close(lent, truth)


def test_a_weight_without_main_grad_is_refused() -> None:
    inputs = make_inputs(6, 16, 70)
    with pytest.raises(ValueError, match="fuse_main_grad: expected a weight with main_grad"):
        backward(inputs, torch.nn.Parameter(inputs.weight))


def test_where_no_gradient_is_due_no_main_grad_is_needed() -> None:
    """Evaluation, or a frozen head: fusion may be on before any wrapper has made the buffers."""
    inputs = make_inputs(6, 16, 70)
    with torch.no_grad():
        linear_logprob(inputs.hidden, torch.nn.Parameter(inputs.weight), inputs.labels, fuse_main_grad=True)
    backward(inputs, inputs.weight)


def train_under_megatron_ddp(fuse: bool, overlap: bool, tied: bool, distributed_optimizer: bool) -> dict[str, Tensor]:
    """Two micro-batches of a tiny language model; the gradients as Megatron's wrapper reduced them."""
    torch.manual_seed(0)
    model: Any = torch.nn.ModuleDict(
        {"embedding": torch.nn.Embedding(40, 16), "head": torch.nn.Linear(16, 40, bias=False)}
    )
    if tied:
        model.head.weight = model.embedding.weight
        model.head.weight.zero_out_wgrad = True
    wrapped = DistributedDataParallel(
        TransformerConfig(num_layers=1, hidden_size=16, num_attention_heads=1),
        DistributedDataParallelConfig(overlap_grad_reduce=overlap, use_distributed_optimizer=distributed_optimizer),
        model,
    )
    rank = torch.distributed.get_rank()
    for step in range(2):
        ids = torch.randint(0, 40, (2, 5), generator=torch.Generator().manual_seed(10 * rank + step))
        hidden = torch.tanh(model.embedding(ids))
        synchronise = wrapped.no_sync if step == 0 else nullcontext
        with synchronise():
            linear_logprob(hidden, model.head.weight, ids.roll(-1, 1), fuse_main_grad=fuse)[0].sum().backward()
    wrapped.finish_grad_sync()
    return {name: parameter.main_grad.clone() for name, parameter in model.named_parameters()}


@on_ranks(Case(dp=2))
def test_megatrons_wrapper_ends_with_the_same_gradients() -> None:
    for options in product((False, True), repeat=3):
        ours, theirs = (train_under_megatron_ddp(fuse, *options) for fuse in (True, False))
        assert_agree(ours, theirs)
        assert all(value.any() for value in ours.values())
