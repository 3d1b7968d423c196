"""Choosing a backend, also on machines that this one is not, and importing the operator at all."""

import subprocess
import sys
import warnings
from typing import Any
from unittest import mock

import pytest
import torch
from fused_head.oracle import make_inputs

from mcore_unpatch import compat
from mcore_unpatch.compat import linear_logprob
from mcore_unpatch.compat.fused_head import problem, torch_backend

CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def _nothing_said_yet() -> object:
    with mock.patch.object(torch_backend, "_warned", set()):
        yield


def logprobs(backend: Any) -> torch.Tensor:
    inputs = make_inputs(3, 8, 20)
    options = compat.LogprobOptions(backend=backend)
    return linear_logprob(inputs.hidden, inputs.weight, inputs.labels, options=options).logprobs


def test_triton_where_it_cannot_run_says_why_once_and_falls_back() -> None:
    with pytest.warns(RuntimeWarning, match="backend='triton' cannot run here, using 'torch': .* on cpu") as said:
        found = logprobs("triton")
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for backend in ("triton", "auto", "torch"):
            assert torch.equal(logprobs(backend), found)


def test_every_public_name_is_found() -> None:
    for name in compat.__all__:
        assert getattr(compat, name).__name__ == name
        assert name in dir(compat)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = compat.nonsense


def test_without_torch_the_error_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "import mcore_unpatch.compat as compat\n"
        "try: compat.linear_logprob\n"
        "except ImportError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.strip() == (
        "mcore_unpatch.compat.linear_logprob needs torch, which is not installed; "
        "run `pip install 'mcore-unpatch[ops]'`."
    )


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


@pytest.mark.parametrize(("hidden", "weight"), [(True, False), (False, True), (False, False)])
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
