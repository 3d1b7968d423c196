"""When the triton backend is taken on a CUDA device. What torch says of a card that is not at hand is mocked."""

import warnings
from collections.abc import Iterator
from unittest import mock

import pytest
import torch

from mcore_unpatch.compat.fused_head import torch_backend
from mcore_unpatch.compat.fused_head.torch_backend import TorchBackend

CUDA = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def _a_turing_card() -> Iterator[None]:
    with (
        mock.patch.object(torch_backend, "_warned", set()),
        mock.patch("torch.cuda.get_device_capability", return_value=(7, 5)),
        mock.patch("torch.cuda.get_device_name", return_value="Tesla T4"),
    ):
        yield


def choose(name: str) -> str:
    return type(torch_backend.choose_backend(name, CUDA)).__name__


def test_auto_takes_triton_from_ampere_on_and_says_once_why_it_does_not() -> None:
    pytest.importorskip("triton")
    with pytest.warns(RuntimeWarning, match="backend='auto' uses 'torch' here, and not 'triton': its kernels need Amp"):
        assert choose("auto") == TorchBackend.__name__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose("auto") == TorchBackend.__name__
        assert type(torch_backend.choose_backend("auto", torch.device("cpu"))) is TorchBackend
        for capability in ((8, 0), (8, 9), (9, 0), (10, 0), (12, 0)):
            with mock.patch("torch.cuda.get_device_capability", return_value=capability):
                assert choose("auto") == choose("triton") == "TritonBackend"
                assert choose("torch") == TorchBackend.__name__


def test_only_hopper_reads_by_the_tma() -> None:
    launch = pytest.importorskip("mcore_unpatch.compat.fused_head.triton.launch")
    for index, (capability, tma) in enumerate([((8, 0), False), ((9, 0), True), ((10, 0), False)]):
        with mock.patch("torch.cuda.get_device_capability", return_value=capability):
            assert launch.has_tma.__wrapped__(torch.device("cuda", index)) is tma


def test_asked_for_by_name_the_reason_is_told_once() -> None:
    pytest.importorskip("triton")
    with pytest.warns(
        RuntimeWarning, match="using 'torch': its kernels need Ampere or newer, and this GPU is Tesla T4"
    ):
        assert choose("triton") == TorchBackend.__name__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        choose("triton")


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("triton", f"triton is not installed; install triton {torch_backend.LEAST_TRITON} or newer"),
        ("triton.tools.tensor_descriptor", f"no tensor descriptors; install triton {torch_backend.LEAST_TRITON}"),
    ],
)
@pytest.mark.parametrize("name", ["auto", "triton"])
def test_a_triton_that_is_missing_or_too_old(missing: str, reason: str, name: str) -> None:
    with (
        mock.patch.object(torch_backend, "find_spec", side_effect=lambda name: None if name == missing else object()),
        pytest.warns(RuntimeWarning, match=reason),
    ):
        assert choose(name) == TorchBackend.__name__
