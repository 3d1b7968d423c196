"""The operator as a citizen of autograd."""

from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import pytest
import torch
from fused_head.backend_checks import check_the_hidden_gradient_comes_early
from fused_head.counters import ProductCounter
from fused_head.oracle import Inputs, Results, grad_of, linear_logprob, make_inputs, materialised, results
from harness.rounding import assert_agree, assert_close
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from mcore_unpatch.compat import VocabOutput, vocab_pass
from mcore_unpatch.compat.fused_head.torch_backend import TorchBackend


def leaves(inputs: Inputs, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    hidden, weight = (x.to(dtype or x.dtype).detach().clone().requires_grad_() for x in (inputs.hidden, inputs.weight))
    return hidden, weight


def grads_of(hidden: Tensor, weight: Tensor) -> Results:
    return {"hidden": grad_of(hidden), "weight": grad_of(weight)}


def test_what_is_not_used_asks_the_backend_for_nothing() -> None:
    inputs = make_inputs(4, 8, 40)
    out = vocab_pass(*leaves(inputs), inputs.labels, entropy=True, topk=2)
    assert out.logprobs is not None
    give_zeros = lambda problem, grads, hidden_grad, weight_grad: hidden_grad(torch.zeros(4, 8))  # noqa: E731
    with mock.patch.object(TorchBackend, "backward", side_effect=give_zeros) as backward:
        out.logprobs.sum().backward()
    grads = backward.call_args.args[1]
    assert grads.target_coefficients.shape == (4, 1)  # the label's, not those of top-k
    assert grads.entropy_coefficient is None


@pytest.mark.parametrize("output", [0, 1])
def test_one_output_unused(output: int) -> None:
    inputs = make_inputs(10, 8, 40)
    hidden, weight = leaves(inputs)
    found = linear_logprob(hidden, weight, inputs.labels, entropy=True)[output]
    assert found is not None
    found.sum().backward()
    exact_hidden, exact_weight = leaves(inputs, torch.float64)
    materialised(exact_hidden, exact_weight, inputs.labels)[output].sum().backward()
    assert_agree(grads_of(hidden, weight), grads_of(exact_hidden, exact_weight))


def test_results_used_twice_and_backward_twice() -> None:
    inputs = make_inputs(10, 8, 40)
    hidden, weight = leaves(inputs)
    logprobs, _ = linear_logprob(hidden, weight, inputs.labels)
    loss = logprobs.sum() + (logprobs**2).sum()
    first = torch.autograd.grad(loss, [hidden, weight], retain_graph=True)
    second = torch.autograd.grad(loss, [hidden, weight])
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    exact = leaves(inputs, torch.float64)
    plain, _ = materialised(*exact, inputs.labels)
    truth = torch.autograd.grad(plain.sum() + (plain**2).sum(), exact)
    names = ("hidden", "weight")
    assert_agree(dict(zip(names, first, strict=True)), dict(zip(names, truth, strict=True)))


@pytest.mark.parametrize("wanted", ["hidden", "weight"])
def test_only_the_products_that_are_needed(wanted: str) -> None:
    inputs = make_inputs(32, 16, 100)
    product = 32 * 16 * 100
    hidden, weight = leaves(inputs)
    (weight if wanted == "hidden" else hidden).requires_grad_(False)
    logprobs, _ = linear_logprob(hidden, weight, inputs.labels)
    with ProductCounter() as counter:
        logprobs.sum().backward()
    assert counter.multiplications == 2 * product  # the logits again, and the one gradient
    wanted_one, other = (hidden, weight) if wanted == "hidden" else (weight, hidden)
    assert other.grad is None
    plain = replace(inputs, logprob_grad=torch.ones(32), entropy_grad=torch.zeros(32))
    assert_close(grad_of(wanted_one), results(linear_logprob, plain)[f"{wanted}.grad"])


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpoint(reentrant: bool) -> None:
    inputs = make_inputs(10, 8, 40)

    def recomputed(hidden: Tensor, weight: Tensor, labels: Tensor, **options: bool) -> tuple[Tensor, Tensor]:
        def call(hidden: Tensor) -> tuple[Tensor, Tensor]:
            logprobs, entropy = linear_logprob(hidden * 1, weight, labels, **options)  # type: ignore[arg-type]
            assert entropy is not None
            return logprobs, entropy

        outputs: tuple[Tensor, Tensor] = checkpoint(call, hidden, use_reentrant=reentrant)
        return outputs

    straight, again = results(linear_logprob, inputs), results(recomputed, inputs)
    assert all(torch.equal(straight[name], again[name]) for name in straight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_changes_nothing(dtype: torch.dtype) -> None:
    """The product's dtype is the weight's: a float32 head stays float32."""
    inputs = make_inputs(10, 8, 40, dtype)
    outside = results(linear_logprob, inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = results(linear_logprob, inputs)
    assert all(torch.equal(outside[name], inside[name]) for name in outside)


def test_second_derivatives_are_refused() -> None:
    inputs = make_inputs(4, 8, 40)
    hidden, weight = leaves(inputs)
    loss = linear_logprob(hidden, weight, inputs.labels)[0].sum()
    with pytest.raises(RuntimeError, match="no second derivative; call backward without create_graph=True"):
        torch.autograd.grad(loss, hidden, create_graph=True)


def _top(function: Callable[..., VocabOutput], inputs: Inputs, **options: object) -> tuple[Tensor, Tensor]:
    out = function(inputs.hidden, inputs.weight, **options)
    assert out.topk_logits is not None
    assert out.topk_ids is not None
    return out.topk_logits, out.topk_ids


@pytest.mark.parametrize("k", [1, 5, 25])
def test_top_k_without_labels(k: int) -> None:
    inputs = make_inputs((3, 4), 8, 60)
    logits, ids = _top(vocab_pass, inputs, topk=k, vocab_size=25, logit_scale=0.5, tile_bytes=6_000)
    full = inputs.hidden @ inputs.weight[:25].t() * 0.5
    assert_close(logits, full.topk(k).values)
    assert torch.equal(full.gather(-1, ids).argsort(-1, descending=True), torch.arange(k).expand(3, 4, k))
    assert vocab_pass(inputs.hidden, inputs.weight).logprobs is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tile_bytes", [60_000, 1_000_000], ids=["tiles of rows and columns", "tiles of columns"])
def test_the_hidden_gradient_comes_early(dtype: torch.dtype, tile_bytes: int) -> None:
    check_the_hidden_gradient_comes_early(TorchBackend(), dtype, tile_bytes)
