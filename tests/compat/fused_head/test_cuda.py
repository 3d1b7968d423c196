"""What only a GPU can show: no waiting, capture in a graph, deterministic algorithms, exactness of 16-bit products."""

import pytest
import torch
from fused_head.oracle import assert_exact, make_inputs, materialised, results
from torch import Tensor

from mcore_unpatch.compat import linear_logprob, vocab_pass

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def on_gpu(dtype: torch.dtype = torch.bfloat16) -> tuple[Tensor, Tensor, Tensor]:
    inputs = make_inputs(300, 64, 5000, dtype)
    return inputs.hidden.cuda().requires_grad_(), inputs.weight.cuda().requires_grad_(), inputs.labels.cuda()


def everything(hidden: Tensor, weight: Tensor, labels: Tensor, mask: Tensor | None, count: int | None) -> None:
    out = vocab_pass(
        hidden, weight, labels, entropy=True, topk=4, mask=mask, mask_count=count, vocab_size=4900, tile_bytes=1 << 20
    )
    assert out.logprobs is not None
    assert out.entropy is not None
    assert out.topk_logits is not None
    (out.logprobs.sum() + out.entropy.sum() + out.topk_logits.sum()).backward()


@pytest.mark.parametrize("masked", [False, True])
def test_the_host_never_waits(masked: bool) -> None:
    hidden, weight, labels = on_gpu()
    mask = torch.arange(300, device="cuda") % 2 if masked else None
    everything(hidden, weight, labels, mask, 150 if masked else None)
    torch.cuda.set_sync_debug_mode("error")
    try:
        everything(hidden, weight, labels, mask, 150 if masked else None)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_mask_alone_waits_once() -> None:
    hidden, weight, labels = on_gpu()
    mask = torch.arange(300, device="cuda") % 2
    everything(hidden, weight, labels, mask, None)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with pytest.warns(UserWarning, match="synchronizing") as waits:
            everything(hidden, weight, labels, mask, None)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(waits) == 1


@pytest.mark.parametrize("keep_bytes", [0, 1 << 20, 1 << 30])
@pytest.mark.parametrize("masked", [False, True])
def test_capture_in_a_graph(keep_bytes: int, masked: bool) -> None:
    hidden, weight, labels = on_gpu()
    mask = {"mask": torch.arange(300, device="cuda") % 2, "mask_count": 150} if masked else {}

    def step() -> Tensor:
        logprobs, entropy = linear_logprob(
            hidden, weight, labels, entropy=True, tile_bytes=1 << 20, keep_bytes=keep_bytes, **mask
        )
        assert entropy is not None
        (logprobs.sum() + entropy.sum()).backward()
        return logprobs.detach()

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    hidden.grad = weight.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        hidden.mul_(0.5)
    graph.replay()
    replayed = hidden.grad
    assert replayed is not None
    replayed = replayed.clone()
    hidden.grad = weight.grad = None
    assert torch.equal(captured, step())
    assert torch.equal(replayed, hidden.grad)


@pytest.mark.parametrize("keep_bytes", [0, 1 << 30])
@pytest.mark.parametrize("left", [0, 1, 90, 200])
def test_a_graph_takes_the_number_of_rows_from_the_device(left: int, keep_bytes: int) -> None:
    """`mask_count` is a bound: a replay follows the mask of now, with fewer rows or other ones."""
    hidden, weight, labels = on_gpu()
    mask = (torch.arange(300, device="cuda") < 200).int()

    def step() -> Tensor:
        logprobs, entropy = linear_logprob(
            hidden, weight, labels, entropy=True, mask=mask, mask_count=200, keep_bytes=keep_bytes
        )
        assert entropy is not None
        (logprobs.sum() + entropy.sum()).backward()
        return logprobs.detach()

    with torch.cuda.stream(torch.cuda.Stream()):
        step()
    torch.cuda.synchronize()
    hidden.grad = weight.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    mask.copy_((torch.arange(300, device="cuda") * 7 % 300 < left).int())
    graph.replay()
    assert hidden.grad is not None
    assert weight.grad is not None
    replayed = [hidden.grad.clone(), weight.grad.clone()]
    hidden.grad = weight.grad = None
    assert torch.equal(captured, step())
    assert captured.count_nonzero() == left
    assert all(torch.equal(a, b) for a, b in zip(replayed, (hidden.grad, weight.grad), strict=True))
    assert hidden.grad.any(1).sum() == left


def test_a_graph_cannot_repeat_what_auto_decides() -> None:
    hidden, weight, labels = on_gpu()
    linear_logprob(hidden, weight, labels, keep_bytes="auto")
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(ValueError, match="keep_bytes='auto' reads how much memory is free"), torch.cuda.graph(graph):
        linear_logprob(hidden, weight, labels, keep_bytes="auto")


def test_deterministic_algorithms() -> None:
    gradients = []
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(2):
            hidden, weight, labels = on_gpu()
            everything(hidden, weight, labels, None, None)
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
