"""What only a GPU can show: no waiting, capture in a graph, deterministic algorithms, exactness of 16-bit products."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fused_head.confident_rows import PROBABILITIES, check_kept_is_no_worse
from fused_head.oracle import assert_exact, linear_logprob, make_inputs, materialised, results
from harness.rounding import assert_close
from torch import Tensor

from mcore_unpatch.compat import vocab_pass

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def on_gpu(dtype: torch.dtype = torch.bfloat16) -> tuple[Tensor, Tensor, Tensor]:
    inputs = make_inputs(300, 64, 5000, dtype)
    return inputs.hidden.cuda().requires_grad_(), inputs.weight.cuda().requires_grad_(), inputs.labels.cuda()


def everything(hidden: Tensor, weight: Tensor, labels: Tensor, **options: Any) -> None:
    options = {"vocab_size": 4900, "tile_bytes": 1 << 20} | options
    out = vocab_pass(hidden, weight, labels, entropy=True, topk=4, **options)
    assert out.logprobs is not None
    assert out.entropy is not None
    assert out.topk_logits is not None
    (out.logprobs.sum() + out.entropy.sum() + out.topk_logits.sum()).backward()


@pytest.mark.parametrize("bounded", ["mask", "labels", "nothing is left out"])
def test_the_host_never_waits(bounded: str) -> None:
    hidden, weight, labels = on_gpu()
    labels[::2] = -100
    options = {
        "mask": {"mask": torch.arange(300, device="cuda") % 2, "max_rows": 150},
        "labels": {"max_rows": 150},
    }.get(bounded, {"ignore_index": None})
    everything(hidden, weight, labels, **options)
    torch.cuda.set_sync_debug_mode("error")
    try:
        everything(hidden, weight, labels, **options)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("masked", [False, True])
def test_what_leaves_rows_out_waits_once(masked: bool) -> None:
    hidden, weight, labels = on_gpu()
    mask = torch.arange(300, device="cuda") % 2 if masked else None
    everything(hidden, weight, labels, mask=mask)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with pytest.warns(UserWarning, match="synchronizing") as waits:
            everything(hidden, weight, labels, mask=mask)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(waits) == 1


Step = Callable[[], list[Tensor]]


def steps(hidden: Tensor, weight: Tensor, labels: Tensor, **options: Any) -> Step:
    """A function that goes forward and backward, and returns log-probs, entropy and both gradients."""

    def step() -> list[Tensor]:
        hidden.grad = weight.grad = None
        logprobs, entropy = linear_logprob(hidden, weight, labels, entropy=True, **options)
        assert entropy is not None
        (logprobs.sum() + entropy.sum()).backward()
        assert hidden.grad is not None
        assert weight.grad is not None
        return [logprobs.detach(), entropy.detach(), hidden.grad, weight.grad]

    return step


def captured(step: Step) -> tuple[torch.cuda.CUDAGraph, list[Tensor]]:
    with torch.cuda.stream(torch.cuda.Stream()):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    return graph, results


@pytest.mark.parametrize("keep_bytes", [0, 1 << 20, 1 << 30])
@pytest.mark.parametrize("masked", [False, True])
def test_capture_in_a_graph(keep_bytes: int, masked: bool) -> None:
    hidden, weight, labels = on_gpu()
    mask = {"mask": torch.arange(300, device="cuda") % 2, "max_rows": 150} if masked else {}
    step = steps(hidden, weight, labels, tile_bytes=1 << 20, keep_bytes=keep_bytes, **mask)
    graph, results = captured(step)
    with torch.no_grad():
        hidden.mul_(0.5)
    graph.replay()
    replayed = [value.clone() for value in results]
    assert all(torch.equal(a, b) for a, b in zip(replayed, step(), strict=True))


@pytest.mark.parametrize("keep_bytes", [0, 1 << 30])
@pytest.mark.parametrize("left", [0, 1, 90, 200])
def test_a_graph_takes_the_number_of_rows_from_the_device(left: int, keep_bytes: int) -> None:
    """`max_rows` is a bound: a replay follows the mask of now, with fewer rows or other ones."""
    hidden, weight, labels = on_gpu()
    mask = (torch.arange(300, device="cuda") < 200).int()
    step = steps(hidden, weight, labels, mask=mask, max_rows=200, keep_bytes=keep_bytes)
    graph, results = captured(step)
    mask.copy_((torch.arange(300, device="cuda") * 7 % 300 < left).int())
    graph.replay()
    replayed = [value.clone() for value in results]
    assert all(torch.equal(a, b) for a, b in zip(replayed, step(), strict=True))
    assert replayed[0].count_nonzero() == left
    assert replayed[2].any(1).sum() == left


@pytest.mark.parametrize("masked", [False, True])
def test_a_graph_computes_all_rows_where_it_would_have_to_wait(masked: bool) -> None:
    """And drops those that the labels and the mask of the replay leave out."""
    hidden, weight, labels = on_gpu()
    labels[::3] = -100
    mask = (torch.arange(300, device="cuda") % 5 > 0) if masked else None
    step = steps(hidden, weight, labels, mask=mask)
    graph, results = captured(step)
    labels.fill_(7)
    labels[1::2] = -100
    graph.replay()
    replayed = [value.clone() for value in results]
    for name, mine, other in zip(("logprobs", "entropy", "hidden", "weight"), replayed, step(), strict=True):
        assert_close(mine, other, torch.bfloat16 if name in ("hidden", "weight") else torch.float32)
    left_out = labels == -100
    assert not any(value[left_out].any() for value in replayed[:3])


@pytest.mark.parametrize("p", PROBABILITIES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_kept_logits_keep_the_tail_of_sure_rows(dtype: torch.dtype, p: float) -> None:
    check_kept_is_no_worse(p, dtype, "cuda", vocab=151_936)


def test_deterministic_algorithms() -> None:
    gradients = []
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(2):
            hidden, weight, labels = on_gpu()
            everything(hidden, weight, labels)
            gradients.append((hidden.grad, weight.grad))
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_autocast_changes_nothing() -> None:
    hidden, weight, labels = on_gpu()
    outside, _ = linear_logprob(hidden, weight, labels)
    with torch.autocast("cuda", dtype=torch.float16):
        inside, _ = linear_logprob(hidden, weight, labels)
    assert torch.equal(inside, outside)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_exactness(dtype: torch.dtype) -> None:
    inputs = make_inputs(300, 64, 5000, dtype)
    moved = type(inputs)(*(getattr(inputs, name).cuda() for name in inputs.__dataclass_fields__))
    truth, found = results(materialised, moved.in_float64()), results(linear_logprob, moved, tile_bytes=1 << 20)
    assert_exact(found, truth, inputs)
