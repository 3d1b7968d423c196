"""Lets Megatron run where no GPU is: the places that name the CUDA device literally are given the CPU instead.

Classes of `torch.cuda` that torch's CPU build lacks raise here on every build: what a test needs, all machines have.

Stand-ins, used in the worker processes of the tests alone: `torch.cuda.current_device`, factory calls with
`device="cuda"`, pinned memory, `Tensor.cuda`, the name of a tensor's type, the current stream, waiting for the device,
and the state of the CUDA random generator (no model here draws from it). Without Transformer Engine Megatron's
main branch cannot say whether a layer is one for inference, which it asks of every MTP layer: it is told that none is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

_CUDA, _TYPE = torch.Tensor.cuda, torch.Tensor.type
_MTP = "megatron.core.transformer.multi_token_prediction"


def _lacking(name: str) -> type:
    """A class as the CPU build has it: there, and not to be instantiated. A CUDA build makes events without a GPU."""

    def refuse(cls: type, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"Tried to instantiate dummy base class {name}")

    return type(name, (), {"__new__": refuse})


# On a machine with a GPU these are only lacking in the ranks.
LACKING = (
    "Event",
    "ExternalStream",
    "Stream",
    "CUDAGraph",
    "MemPool",
    "graph_pool_handle",
    "is_current_stream_capturing",
)


@contextmanager
def cpu_build() -> Iterator[None]:
    """Run the block as if torch had been built without CUDA."""
    with ExitStack() as stack:
        for name in LACKING:
            stack.enter_context(mock.patch(f"torch.cuda.{name}", _lacking(name)))
        yield


class _CudaMeansCpu(TorchFunctionMode):
    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if function is _CUDA:
            return args[0]
        if function is _TYPE and len(args) == 1:
            return function(*args).replace("torch.", "torch.cuda.")
        if not kwargs:
            return function(*args)
        kwargs = {name: value for name, value in kwargs.items() if name != "pin_memory"}
        if str(kwargs.get("device")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)


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
        _CudaMeansCpu(),
    ):
        yield
