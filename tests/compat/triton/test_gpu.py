"""The triton backend on a GPU: `pytest tests/compat/triton/test_gpu.py tests/compat/fused_head/test_cuda.py`."""

from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch
from fused_head.all_statistics import check_statistics
from fused_head.confident_rows import TEMPERATURES, check_same_logits
from fused_head.oracle import Inputs, assert_exact, grad_of, linear_logprob, make_inputs, materialised, results
from harness.rounding import assert_close
from torch import Tensor

from mcore_unpatch.compat import vocab_pass
from mcore_unpatch.compat.fused_head.problem import Problem
from mcore_unpatch.compat.fused_head.torch_backend import _why_not_triton, choose_backend
from mcore_unpatch.compat.fused_head.triton import launch
from mcore_unpatch.compat.fused_head.triton.backend import TritonBackend

CUDA = torch.device("cuda")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or bool(_why_not_triton(CUDA)), reason="needs a GPU and triton"
)


def inputs_on_gpu(tokens: int, width: int, vocab: int, dtype: torch.dtype = torch.bfloat16) -> Inputs:
    inputs = make_inputs(tokens, width, vocab, dtype)
    return Inputs(*(getattr(inputs, name).cuda() for name in Inputs.__dataclass_fields__))


def check(inputs: Inputs, ours: dict[str, Any] | None = None, **shared: Any) -> None:
    truth = results(materialised, inputs.in_float64(), **shared)
    assert_exact(results(linear_logprob, inputs, **shared, **(ours or {})), truth, inputs)


def test_auto_is_triton() -> None:
    assert type(choose_backend("auto", CUDA)).__name__ == "TritonBackend"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("tokens", "width", "vocab"),
    [
        (1, 8, 1),
        (3, 32, 7),
        (127, 200, 255),
        (129, 72, 257),
        (512, 256, 5000),
        (4097, 64, 3001),
        (3, 128, 50257),
        (300, 512, 151936),
    ],
)
def test_odd_shapes(tokens: int, width: int, vocab: int, dtype: torch.dtype) -> None:
    check(inputs_on_gpu(tokens, width, vocab, dtype))


def test_tiles_of_rows_and_columns() -> None:
    inputs = inputs_on_gpu(3000, 128, 20_001)
    for tile_bytes in (200_000, 3_000_000, 30_000_000):
        check(inputs, {"tile_bytes": tile_bytes})


def test_more_rows_than_a_tile_holds() -> None:
    check(inputs_on_gpu(40_000, 64, 1000))


def test_options() -> None:
    inputs = inputs_on_gpu(700, 128, 3001)
    temperature = torch.rand(700, device=CUDA) + 0.5
    check(inputs, temperature=temperature, logit_scale=0.7, vocab_size=2900)
    check(inputs, mask=torch.arange(700, device=CUDA) % 3, temperature=temperature)
    check(inputs, {"max_rows": 690}, mask=torch.arange(700, device=CUDA) % 3)
    check(replace(inputs, hidden=inputs.hidden.float()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_forward_and_backward_see_the_same_logits(dtype: torch.dtype, temperature: float) -> None:
    check_same_logits(dtype, "cuda", temperature)


@pytest.mark.parametrize("buffer", [torch.float32, torch.bfloat16])
def test_main_grad_costs_no_second_buffer(buffer: torch.dtype) -> None:
    inputs = inputs_on_gpu(512, 256, 40_000)
    exact = inputs.in_float64()
    leaf = exact.weight.requires_grad_()
    (materialised(exact.hidden, leaf, inputs.labels)[0] * inputs.logprob_grad).sum().backward()
    truth = grad_of(leaf)
    before_it = truth.roll(1, 0).to(buffer)  # what an earlier micro-batch has left, of the same size
    weight: Any = torch.nn.Parameter(inputs.weight.clone())
    weight.main_grad = before_it.clone()
    hidden = inputs.hidden.clone().requires_grad_()
    logprobs, _ = linear_logprob(hidden, weight, inputs.labels, fuse_main_grad=True, tile_bytes=1 << 20)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    (logprobs * inputs.logprob_grad).sum().backward()
    assert torch.cuda.max_memory_allocated() - before < 4 << 20 < weight.nbytes
    assert_close(weight.main_grad, before_it + truth, torch.bfloat16, sums=40_000)


def peak_of_a_step(tokens: int, width: int, vocab: int) -> int:
    """Bytes beyond inputs, outputs and gradients."""
    inputs = inputs_on_gpu(1, width, 1)
    hidden = torch.randn(tokens, width, device=CUDA, dtype=torch.bfloat16).requires_grad_()
    weight = torch.randn(vocab, width, device=CUDA, dtype=torch.bfloat16).requires_grad_()
    labels: Tensor = torch.randint(0, vocab, (tokens,), device=CUDA)
    del inputs
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    logprobs, entropy = linear_logprob(hidden, weight, labels, entropy=True)
    assert entropy is not None
    (logprobs.sum() + entropy.sum()).backward()
    return torch.cuda.max_memory_allocated() - before - grad_of(hidden).nbytes - grad_of(weight).nbytes


@pytest.mark.parametrize(("tokens", "width", "vocab"), [(32_768, 1024, 100_000), (8192, 4096, 50_000)])
def test_memory_stays_below_a_gibibyte(tokens: int, width: int, vocab: int) -> None:
    assert peak_of_a_step(tokens, width, vocab) < 1 << 30


def test_memory_of_many_tokens_is_one_float32_copy_of_the_hidden_gradient_more() -> None:
    tokens, width = 262_144, 512
    assert peak_of_a_step(tokens, width, 20_000) < (1 << 30) + tokens * width * 4


@pytest.mark.parametrize("tma", [True, False], ids=["tma", "pointers"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"keep_bytes": 1 << 34},
        {"keep_bytes": 700 * 4096},
        {"vocab_size": 2900, "keep_bytes": 1 << 34},
        {"spread": 4.0, "keep_bytes": 1 << 34},
        {"spread": 15.0, "keep_bytes": 1 << 34},
        {"topk": 64, "ids": 70},
    ],
    ids=str,
)
def test_every_statistic(options: dict[str, Any], tma: bool) -> None:
    with mock.patch.object(launch, "has_tma", return_value=tma):
        check_statistics(torch.bfloat16, "cuda", shape=(700, 128, 3001), **options)


@pytest.mark.parametrize("tma", [True, False], ids=["tma", "pointers"])
def test_a_row_has_the_same_bits_in_any_company(tma: bool) -> None:
    inputs = inputs_on_gpu(3000, 512, 30_001)
    every = torch.arange(3000, device=CUDA)

    def call(rows: Tensor) -> list[Tensor]:
        out = vocab_pass(inputs.hidden[rows], inputs.weight, inputs.labels[rows], entropy=True)
        assert out.logprobs is not None
        assert out.entropy is not None
        return [out.logprobs, out.entropy, out.logsumexp]

    with mock.patch.object(launch, "has_tma", return_value=tma):
        whole = call(every)
        for rows in (every[:1], every[5:6], every[:130], every[:777], every.flip(0), every[::7], every[2999:]):
            assert all(torch.equal(few, all_of_them[rows]) for few, all_of_them in zip(call(rows), whole, strict=True))


@pytest.mark.parametrize("scale", [1.0, 0.7])
@pytest.mark.parametrize("tma", [True, False], ids=["tma", "pointers"])
@pytest.mark.parametrize("shape", [(1000, 512, 30_001), (130, 200, 3000), (5, 4096, 70_000)])
def test_chosen_logits_have_the_bits_of_those_in_the_statistics(
    shape: tuple[int, int, int], tma: bool, scale: float
) -> None:
    """They are multiplied out apart: with one bit less in common, `1 - p` of a sure model would lose its digits."""
    inputs = inputs_on_gpu(*shape)
    plain = Problem(inputs.hidden, inputs.weight, scale=scale, columns=shape[2], topk=8, tile_bytes=512 << 20)
    with mock.patch.object(launch, "has_tma", return_value=tma):
        top = TritonBackend().forward(plain)
        assert top.topk_columns is not None
        found = TritonBackend().forward(replace(plain, chosen=top.topk_columns, topk=0))
    assert found.chosen is not None
    assert torch.equal(found.chosen[:, 0], found.row_max)
    assert torch.equal(found.chosen, top.topk_logits)


@pytest.mark.parametrize("keep_bytes", [0, 1 << 29, 1 << 34])
def test_the_same_call_gives_the_same_bits(keep_bytes: int) -> None:
    inputs = inputs_on_gpu(3000, 512, 30_001)
    first, second = (results(linear_logprob, inputs, keep_bytes=keep_bytes) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_keep_bytes_is_a_bound() -> None:
    inputs = inputs_on_gpu(2048, 256, 50_000)
    hidden, weight = inputs.hidden.requires_grad_(), inputs.weight.requires_grad_()
    for keep_bytes in (0, 10 << 20, 100 << 20, 1 << 34):
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        out, _ = linear_logprob(hidden, weight, inputs.labels, keep_bytes=keep_bytes)
        held = torch.cuda.memory_allocated() - before - (1 << 20)  # a few numbers per row
        assert held <= min(keep_bytes, 2048 * (2 * 50_048 + 4 * 196))
        assert keep_bytes == 0 or held > min(keep_bytes, 2048 * 50_000 * 2) * 0.8
        del out
