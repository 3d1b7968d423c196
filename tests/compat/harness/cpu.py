"""Lets Megatron run where no GPU is: the places that name the CUDA device literally are given the CPU instead.

Classes of `torch.cuda` that torch's CPU build lacks raise here on every build: what a test needs, all machines have.

Stand-ins, used in the worker processes of the tests alone: `torch.cuda.current_device`, factory calls with
`device="cuda"`, pinned memory, `Tensor.cuda`, the name of a tensor's type, the current stream, waiting for the device,
and the state of the CUDA random generator (no model here draws from it). Without Transformer Engine Megatron's
main branch cannot say whether a layer is one for inference, which it asks of every MTP layer: it is told that none is.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest import mock

import torch
from torch.utils._device import _device_constructors

_TYPE = torch.Tensor.type
_MTP = "megatron.core.transformer.multi_token_prediction"


def _lacking(name: str) -> type:
    """A class as the CPU build has it: there, and not to be instantiated. A CUDA build makes events without a GPU."""

    def refuse(cls: type, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"Tried to instantiate dummy base class {name}")

    return type(name, (), {"__new__": refuse})


# On a machine with a GPU these are only lacking in the ranks.
LACKING = (
    *("Event", "ExternalStream", "Stream", "CUDAGraph", "MemPool", "graph_pool_handle"),
    "is_current_stream_capturing",
)


@contextmanager
def cpu_build() -> Iterator[None]:
    """Run the block as if torch had been built without CUDA."""
    with ExitStack() as stack:
        for name in LACKING:
            stack.enter_context(mock.patch(f"torch.cuda.{name}", _lacking(name)))
        yield


def _on_cuda(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with the CPU wherever the CUDA device is named, and without pinned memory."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("pin_memory", None)
        if str(kwargs.get("device")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)

    return call


def _type(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    answer = _TYPE(tensor, *args, **kwargs)
    return answer if args or kwargs else answer.replace("torch.", "torch.cuda.")


# All that take `device`. A mode that sees every call of torch would be simpler, and costs ranks a tenth of their time.
_LIKE = ("empty_like", "full_like", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like")
_FACTORIES = [found.__name__ for found in _device_constructors() if getattr(torch, found.__name__, None) is found]
_METHODS = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros", "to")
STAND_INS = {(torch, name): _on_cuda(getattr(torch, name)) for name in (*_LIKE, *_FACTORIES, "from_file", "normal")}
STAND_INS |= {(torch.Tensor, name): _on_cuda(getattr(torch.Tensor, name)) for name in _METHODS}
STAND_INS |= {(torch.Tensor, "cuda"): lambda tensor, *args, **kwargs: tensor, (torch.Tensor, "type"): _type}


@contextmanager
def _cuda_means_cpu() -> Iterator[None]:
    with ExitStack() as stack:
        for (owner, name), function in STAND_INS.items():
            stack.enter_context(mock.patch.object(owner, name, function))
        yield


@contextmanager
def on_the_cpu() -> Iterator[None]:
    """Run the block with CUDA spelled CPU."""
    cpu = torch.device("cpu")
    with (
        mock.patch("torch.cuda.current_device", return_value=cpu),
        mock.patch("torch.cuda.current_stream"),
        mock.patch("torch.cuda.synchronize"),
        mock.patch("torch.cuda.manual_seed"),
        mock.patch("torch.cuda.get_rng_state", side_effect=torch.get_rng_state),
        mock.patch("torch.cuda.random.get_rng_state", return_value=torch.get_rng_state()),
        mock.patch("megatron.core.tensor_parallel.random._set_cuda_rng_state"),
        mock.patch(f"{_MTP}.is_inference_column_parallel_linear", return_value=False, create=True),
        cpu_build(),
        _cuda_means_cpu(),
    ):
        yield
