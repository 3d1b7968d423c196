"""Which backend runs and how much is kept, on machines that this one is not: asked without a GPU."""

from typing import Any

import pytest
import torch
from harness.rounding import assert_close

from mcore_unpatch.compat import linear_logprob
from mcore_unpatch.compat.fused_head import problem, settings, torch_backend

CUDA = torch.device("cuda")


def reason(monkeypatch: pytest.MonkeyPatch, device: torch.device, capability: int = 9, **missing: Any) -> str:
    """Why triton does not run, on a machine without the modules named as missing."""
    monkeypatch.setattr(torch_backend, "find_spec", lambda name: None if name in missing.get("modules", ()) else name)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (capability, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "an old one")
    return torch_backend._why_not_triton(device)


def test_why_triton_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert reason(monkeypatch, CUDA) == reason(monkeypatch, CUDA, 8) == ""
    assert reason(monkeypatch, CUDA, 7) == "its kernels need Ampere or newer, and this GPU is an old one"
    assert reason(monkeypatch, torch.device("cpu")) == "the tensors are on cpu, and it needs a CUDA device"
    assert reason(monkeypatch, CUDA, modules=["triton"]) == "triton is not installed; install triton 3.4 or newer"
    assert "install triton 3.4" in reason(monkeypatch, CUDA, modules=["triton.tools.tensor_descriptor"])
    with monkeypatch.context() as amd:
        amd.setattr(torch.version, "hip", "6.4")
        assert reason(amd, CUDA, 7) == ""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert reason(monkeypatch, torch.device("cpu"), 7) == ""
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    assert reason(monkeypatch, torch.device("cpu")) != ""


def test_a_warning_for_who_asked_for_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_backend, "_warned", set())
    cpu = torch.device("cpu")
    for name in ("auto", "torch"):
        assert type(torch_backend.choose_backend(name, cpu)).__name__ == "TorchBackend"
    with pytest.warns(RuntimeWarning, match="cannot run here, using 'torch': it does not support top-k"):
        torch_backend.choose_backend("triton", CUDA, "top-k")
    with pytest.warns(RuntimeWarning, match="the tensors are on cpu"):
        torch_backend.choose_backend("triton", cpu)
    assert type(torch_backend.choose_backend("triton", cpu)).__name__ == "TorchBackend"  # told once


def test_a_device_is_asked_whether_its_products_widen() -> None:
    """A CPU's do not, whatever torch's version: nor do those of other accelerators that torch knows from outside."""
    a, b = torch.randn(5, 16).bfloat16(), torch.randn(16, 7).bfloat16()
    weight = torch.zeros(7, 16, dtype=torch.bfloat16)
    tiles = problem.Tiles(problem.Problem(a, weight, columns=7, tile_bytes=1 << 20), torch.bfloat16)
    out = torch.empty(5, 7)
    for times in (1, 2):
        tiles.multiply(out, a, b, accumulate=times == 2)
        assert_close(out, times * (a.double() @ b.double()), torch.bfloat16)


def test_a_chunk_is_a_bound_on_memory() -> None:
    weight = torch.zeros(64, 8)
    assert problem.chunk_tile_bytes(None, 2, weight) is None
    with pytest.raises(ValueError, match="chunk_size: expected at least 1, got 0"):
        problem.chunk_tile_bytes(0, 2, weight)
    least = 16 * 4 * 8 + 1024
    assert problem.chunk_tile_bytes(1, 1, weight) == least
    assert problem.chunk_tile_bytes(10, 2, weight) == 10 * 2 * 64 * 4
    assert problem.chunk_tile_bytes(10**9, 2, weight) == problem.default_tile_bytes("cpu")
    half = weight.bfloat16()
    assert problem.chunk_tile_bytes(1, 1, half) == problem.least_tile_bytes(half) > least
    assert [(s.start, s.stop) for s in problem.spans(7, 3)] == [(0, 3), (3, 6), (6, 7)]


@pytest.mark.parametrize(
    ("total", "vocab_size", "topk", "fits"),
    [(8, None, 0, True), (8, 8, 0, True), (8, 9, 0, False), (8, None, 8, True), (8, None, 9, False), (8, 6, 6, True)],
)
def test_how_many_words_the_shards_must_have(total: int, vocab_size: int | None, topk: int, fits: bool) -> None:
    """Said at once, or, where the number is on a device, as a flag beside it; none where nothing is asked."""
    flag = settings.check_vocabulary(torch.tensor(total), vocab_size, topk)
    if vocab_size is None and not topk:
        assert flag is None
    else:
        assert flag is not None
        assert bool(flag) is fits
    if fits:
        assert settings.check_vocabulary(total, vocab_size, topk) is None
    else:
        name = "vocab_size" if vocab_size is not None else "topk"
        with pytest.raises(ValueError, match=f"{name}: expected at most 8, the number of weight rows"):
            settings.check_vocabulary(total, vocab_size, topk)


def test_no_more_words_are_asked_for_than_there_are() -> None:
    with pytest.raises(ValueError, match="topk: expected at most vocab_size = 4, got 5"):
        settings.check_vocabulary(8, 4, 5)


@pytest.mark.parametrize(("hidden", "weight"), [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("grad", [True, False])
def test_logits_are_kept_for_a_backward_alone(
    monkeypatch: pytest.MonkeyPatch, hidden: bool, weight: bool, grad: bool
) -> None:
    asked: list[int] = []

    def forward(self: Any, asked_for: problem.Problem) -> Any:
        asked.append(asked_for.keep_bytes)
        return self.fold(asked_for)

    monkeypatch.setattr(torch_backend.TorchBackend, "forward", forward)
    tensors = torch.randn(3, 4, requires_grad=hidden), torch.randn(5, 4, requires_grad=weight)
    with torch.set_grad_enabled(grad):
        linear_logprob(*tensors, torch.arange(3), keep_bytes=7)
    assert asked == [7 if grad and (hidden or weight) else 0]
