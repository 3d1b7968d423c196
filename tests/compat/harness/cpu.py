"""Lets Megatron run where no GPU is: the places that name the CUDA device literally are given the CPU instead.

Stand-ins, used in the worker processes of the tests alone: `torch.cuda.current_device`, factory calls with
`device="cuda"`, pinned memory, `Tensor.cuda`, the name of a tensor's type, the current stream, waiting for the device,
and the state of the CUDA random generator (no model here draws from it). Without Transformer Engine Megatron's
main branch cannot say whether a layer is one for inference, which it asks of every MTP layer: it is told that none is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

_CUDA, _TYPE = torch.Tensor.cuda, torch.Tensor.type
_MTP = "megatron.core.transformer.multi_token_prediction"


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
        _CudaMeansCpu(),
    ):
        yield
