"""When the triton backend is taken on a CUDA device. What torch says of a card that is not at hand is mocked."""

import warnings
from collections.abc import Iterator
from unittest import mock

import pytest
import torch

from mcore_unpatch.compat.ops import backends
from mcore_unpatch.compat.ops.torch_backend import TorchBackend

CUDA = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def _an_ampere_card() -> Iterator[None]:
    with (
        mock.patch.object(backends, "_warned", set()),
        mock.patch("torch.cuda.get_device_capability", return_value=(8, 0)),
        mock.patch("torch.cuda.get_device_name", return_value="NVIDIA A100"),
    ):
        yield


def choose(name: str) -> str:
    return type(backends.choose_backend(name, CUDA)).__name__


def test_auto_takes_triton_on_hopper_and_torch_elsewhere_in_silence() -> None:
    pytest.importorskip("triton")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose("auto") == TorchBackend.__name__
        with mock.patch("torch.cuda.get_device_capability", return_value=(9, 0)):
            assert choose("auto") == choose("triton") == "TritonBackend"
            assert choose("torch") == TorchBackend.__name__


def test_asked_for_by_name_the_reason_is_told_once() -> None:
    pytest.importorskip("triton")
    with pytest.warns(RuntimeWarning, match="using 'torch': its kernels are made for Hopper, this is NVIDIA A100"):
        assert choose("triton") == TorchBackend.__name__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        choose("triton")


@pytest.mark.parametrize(
    ("missing", "reason"),
    [("triton", "triton is not installed"), ("triton.tools.tensor_descriptor", "no tensor descriptors, it needs 3.4")],
)
def test_a_triton_that_is_missing_or_too_old(missing: str, reason: str) -> None:
    with (
        mock.patch.object(backends, "find_spec", side_effect=lambda name: None if name == missing else object()),
        pytest.warns(RuntimeWarning, match=reason),
    ):
        assert choose("triton") == TorchBackend.__name__
