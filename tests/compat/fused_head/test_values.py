"""Log-probs, entropy and both gradients against float64, at odd shapes and in every dtype."""

from dataclasses import replace

import pytest
import torch
from fused_head.confident_rows import TEMPERATURES, check_same_logits
from fused_head.oracle import (
    assert_as_exact_as_materialised,
    assert_exact,
    linear_logprob,
    make_inputs,
    materialised,
    results,
)
from harness.rounding import assert_agree

from mcore_unpatch.compat import vocab_pass

LOW = (torch.bfloat16, torch.float16)


@pytest.mark.parametrize(
    ("tokens", "hidden", "vocab"),
    [
        (0, 33, 7),
        (1, 1, 1),
        (1, 33, 50257),
        (3, 1, 7),
        (3, 33, 1),
        (3, 33, 151936),
        (4097, 1, 7),
        (4097, 33, 7),
        (4097, 1, 1),
        (65, 33, 1000),
        ((2, 0, 3), 8, 5),
        ((2, 3, 5), 33, 50),
    ],
)
def test_odd_shapes(tokens: int | tuple[int, ...], hidden: int, vocab: int) -> None:
    assert_as_exact_as_materialised(make_inputs(tokens, hidden, vocab))


@pytest.mark.parametrize("vocab", [1, 7, 300])
@pytest.mark.parametrize("tile_bytes", [3_000, 20_000, 100_000])
def test_every_way_to_cut_tiles(vocab: int, tile_bytes: int) -> None:
    """Row tiles, column tiles, both, and ragged last ones."""
    assert_as_exact_as_materialised(make_inputs(130, 17, vocab), tile_bytes=tile_bytes)


@pytest.mark.parametrize("dtype", [torch.float32, *LOW])
@pytest.mark.parametrize("hidden_dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_dtypes_and_their_mixtures(dtype: torch.dtype, hidden_dtype: torch.dtype) -> None:
    tile_bytes = None if dtype == hidden_dtype else 60_000
    inputs = make_inputs(64, 32, 500, dtype, hidden_dtype)
    assert_as_exact_as_materialised(inputs, temperature=0.7, tile_bytes=tile_bytes)


@pytest.mark.parametrize("dtype", LOW)
def test_low_precision_weights_lose_nothing_in_the_softmax(dtype: torch.dtype) -> None:
    """The logits stay float32: log-probs and entropy are exact for the given weights, not rounded to 16 bits."""
    inputs = make_inputs(64, 64, 3000, dtype)
    truth, found = results(materialised, inputs.in_float64()), results(linear_logprob, inputs, tile_bytes=400_000)
    assert_exact(found, truth, inputs)


def test_temperature_per_token_and_mup() -> None:
    inputs = make_inputs((4, 6), 16, 90)
    temperature = torch.rand(4, 6, generator=torch.Generator().manual_seed(2)) * 2 + 0.1
    assert_as_exact_as_materialised(inputs, temperature=temperature.bfloat16(), logit_scale=3.0)
    scalar = results(linear_logprob, inputs, temperature=torch.tensor(0.5))
    assert torch.equal(scalar["logprobs"], results(linear_logprob, inputs, temperature=0.5)["logprobs"])


def test_large_and_peaked_logits() -> None:
    """Logits of some hundreds: no overflow, and a log-prob near 0 keeps its digits."""
    inputs = make_inputs(40, 16, 200)
    assert_as_exact_as_materialised(inputs, logit_scale=100.0, tile_bytes=20_000)


def test_a_certain_token_keeps_its_digits() -> None:
    """Logits of 200 and a log-prob of -5e-5: their float32 log-sum-exp alone would lose it."""
    logprobs, _ = linear_logprob(torch.ones(1, 1), torch.tensor([[190.0], [200.0]]), torch.tensor([1]))
    truth = -torch.tensor([-10.0], dtype=torch.float64).exp().log1p()
    # What is left of a sum near 1, whose rounding it keeps.
    assert_agree({"log-prob": logprobs}, {"log-prob": truth}, sums=1, peak=-1 / truth.item())


@pytest.mark.parametrize("dtype", LOW)
def test_hidden_is_rounded_to_the_weights_dtype(dtype: torch.dtype) -> None:
    """As ColumnParallelLinear rounds it: the same results to the last bit, and a gradient in hidden's own dtype."""
    wide = make_inputs(20, 16, 70, dtype, torch.float32)
    rounded = replace(wide, hidden=wide.hidden.to(dtype))
    found, expected = results(linear_logprob, wide), results(linear_logprob, rounded)
    assert torch.equal(found["logprobs"], expected["logprobs"])
    assert torch.equal(found["weight.grad"], expected["weight.grad"])
    assert torch.equal(found["hidden.grad"].to(dtype), expected["hidden.grad"])
    assert found["hidden.grad"].dtype == torch.float32


def test_strided_inputs() -> None:
    inputs = make_inputs((6, 4), 16, 40)
    swapped = inputs.hidden.transpose(0, 1)
    logprobs, _ = linear_logprob(swapped, inputs.weight, inputs.labels.t())
    straight, _ = linear_logprob(inputs.hidden, inputs.weight, inputs.labels)
    assert torch.equal(logprobs.t(), straight)
    striped = torch.stack([inputs.weight, inputs.weight], dim=2)[..., 0]
    assert torch.equal(linear_logprob(inputs.hidden, striped, inputs.labels)[0], straight)


def test_the_same_bits_every_time() -> None:
    inputs = make_inputs(100, 16, 400)
    first, second = (results(linear_logprob, inputs, tile_bytes=40_000) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_nan_in_hidden_stays_visible() -> None:
    inputs = make_inputs(6, 8, 40)
    inputs.hidden[2] = torch.nan
    logprobs, entropy = linear_logprob(inputs.hidden, inputs.weight, inputs.labels, entropy=True, tile_bytes=2_000)
    assert entropy is not None
    for row in range(6):
        assert logprobs[row].isnan() == entropy[row].isnan() == (row == 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_forward_and_backward_see_the_same_logits(dtype: torch.dtype, temperature: float) -> None:
    check_same_logits(dtype, "cpu", temperature)


def test_logits_too_low_to_count_have_no_distribution() -> None:
    """All logits negative and a temperature that makes them smaller than what stands for no logit."""
    hidden, weight = torch.full((3, 4), -1.0), torch.rand(5, 4) + 0.1
    for backend in ("torch", "auto"):
        out = vocab_pass(
            hidden, weight, torch.zeros(3, dtype=torch.long), temperature=1e-31, entropy=True, backend=backend
        )
        assert out.logprobs is not None
        assert out.logprobs.isnan().all()
        assert out.logsumexp.isnan().all()
