"""Which backend runs and how much is kept, on machines that this one is not: asked without a GPU."""

from typing import Any

import pytest
import torch

from mcore_unpatch.compat import linear_logprob
from mcore_unpatch.compat.fused_head import problem, torch_backend

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


@pytest.mark.parametrize(("hidden", "weight"), [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("grad", [True, False])
def test_logits_are_kept_for_a_backward_alone(
    monkeypatch: pytest.MonkeyPatch, hidden: bool, weight: bool, grad: bool
) -> None:
    asked: list[int] = []
    own = torch_backend.TorchBackend.forward

    def forward(self: Any, asked_for: problem.Problem) -> Any:
        asked.append(asked_for.keep_bytes)
        return own(self, asked_for)

    monkeypatch.setattr(torch_backend.TorchBackend, "forward", forward)
    tensors = torch.randn(3, 4, requires_grad=hidden), torch.randn(5, 4, requires_grad=weight)
    with torch.set_grad_enabled(grad):
        linear_logprob(*tensors, torch.arange(3), keep_bytes=7)
    assert asked == [7 if grad and (hidden or weight) else 0]
