"""On a GPU: the shims by backend, and no product in fp32 where the head is bf16. Skipped where there is none."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fused_head.counters import Watcher
from harness.gpu import one_rank
from harness.rounding import assert_agree
from torch import Tensor

from mcore_unpatch.compat.nemo_rl import from_parallel_hidden_states_to_logprobs
from mcore_unpatch.compat.skyrl import from_parallel_hidden_to_logprobs

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
VOCAB, WIDTH, BATCH, LENGTH = 5_000, 256, 2, 128


@pytest.fixture
def group(tmp_path: Any) -> Iterator[Any]:
    with one_rank(tmp_path) as world:
        yield world


def tensors(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """The same numbers in every dtype: those that bf16 can hold."""
    generator = torch.Generator("cuda").manual_seed(1)
    how: Any = {"generator": generator, "device": "cuda"}
    hidden = torch.randn(BATCH, LENGTH, WIDTH, **how).bfloat16().to(dtype).requires_grad_()
    weight = (torch.randn(VOCAB, WIDTH, **how) / 16).bfloat16().to(dtype).requires_grad_()
    return hidden, weight, torch.randint(0, VOCAB, (BATCH, LENGTH), **how)


def run(group: Any, dtype: torch.dtype, **options: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The results, and the gradients."""
    hidden, weight, target = tensors(dtype)
    log_probs = from_parallel_hidden_to_logprobs(hidden, weight, target, 0, VOCAB, group, **options)
    log_probs.sum().backward()
    assert hidden.grad is not None
    assert weight.grad is not None
    return {"log_probs": log_probs.detach()}, {"hidden": hidden.grad, "weight": weight.grad}


@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize("options", [{}, {"chunk_size": 16, "temperature": 0.7}], ids=str)
def test_each_backend_by_name(group: Any, backend: Any, options: dict[str, Any]) -> None:
    truth = run(group, torch.float64, fused_backend="torch", **options)
    values, gradients = run(group, torch.bfloat16, fused_backend=backend, **options)
    assert_agree(values, truth[0], torch.float32, sums=VOCAB)
    assert_agree(gradients, truth[1], torch.bfloat16, sums=VOCAB)


class Float32Products(Watcher):
    """Products of which an operand is fp32."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def see(self, name: str, args: Any, result: Any) -> None:
        if name.startswith(("aten.mm", "aten.bmm", "aten.addmm")):
            if any(isinstance(arg, Tensor) and arg.dim() > 1 and arg.dtype == torch.float32 for arg in args[-2:]):
                self.seen.append(name)


@pytest.mark.parametrize("chunk_size", [1, 64])
def test_the_backward_of_a_bf16_head_makes_no_fp32_product(group: Any, chunk_size: int) -> None:
    hidden, weight, target = tensors(torch.bfloat16)
    with Float32Products() as products:
        log_probs = from_parallel_hidden_states_to_logprobs(
            hidden.transpose(0, 1), weight, None, target, 0, VOCAB, group, chunk_size=chunk_size
        )
        log_probs.sum().backward()
    assert products.seen == []
    assert weight.grad is not None
