"""Choosing a backend, and importing the operator at all."""

import subprocess
import sys
import warnings
from typing import Any
from unittest import mock

import pytest
import torch
from fused_head.oracle import make_inputs

from mcore_unpatch import compat
from mcore_unpatch.compat.fused_head import torch_backend


@pytest.fixture(autouse=True)
def _nothing_said_yet() -> object:
    with mock.patch.object(torch_backend, "_warned", set()):
        yield


def logprobs(backend: Any) -> torch.Tensor:
    inputs = make_inputs(3, 8, 20)
    options = compat.LogprobOptions(backend=backend)
    return compat.linear_logprob(inputs.hidden, inputs.weight, inputs.labels, options=options).logprobs


def test_auto_and_torch_are_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(logprobs("auto"), logprobs("torch"))


def test_triton_where_it_cannot_run_says_why_once_and_falls_back() -> None:
    with pytest.warns(RuntimeWarning, match="backend='triton' cannot run here, using 'torch': .* on cpu") as said:
        found = logprobs("triton")
    assert said[0].filename == __file__
    assert torch.equal(found, logprobs("torch"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logprobs("triton")


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
