"""Chooses the backend: by name, or by what the tensors and the machine allow."""

import os
import warnings
from importlib.util import find_spec

import torch

from mcore_unpatch.compat.fused_head.problem import Backend
from mcore_unpatch.compat.fused_head.torch_backend import TorchBackend

_AMPERE = 8  # compute capability: the first with bfloat16 in its matrix units
_warned: set[str] = set()


def choose_backend(name: str, device: torch.device, only_torch: str = "") -> Backend:
    """The backend for `device`; if triton is asked for and cannot run, warn once with the reason and use torch.

    `only_torch` names a feature of the call that the triton backend lacks.
    """
    reason = "" if name == "torch" else f"it does not support {only_torch}" if only_torch else _why_not_triton(device)
    if name == "triton" and reason and reason not in _warned:
        _warned.add(reason)
        warnings.warn(f"backend='triton' cannot run here, using 'torch': {reason}.", RuntimeWarning, stacklevel=5)
    if name == "torch" or reason:
        return TorchBackend()
    from mcore_unpatch.compat.fused_head.triton.backend import TritonBackend

    return TritonBackend()


def _why_not_triton(device: torch.device) -> str:
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"the tensors are on {device.type}, and it needs a CUDA device"
    if find_spec("triton") is None:
        return "triton is not installed"
    if find_spec("triton.tools.tensor_descriptor") is None:
        return "this triton has no tensor descriptors; install triton 3.4 or newer"
    if not hasattr(torch.ops.aten.addmm, "dtype_out"):
        return f"torch {torch.__version__} cannot sum 16-bit products in float32; install torch 2.8 or newer"
    nvidia = device.type == "cuda" and torch.version.hip is None
    if nvidia and torch.cuda.get_device_capability(device)[0] < _AMPERE:
        return f"its kernels need Ampere or newer, and this GPU is {torch.cuda.get_device_name(device)}"
    return ""
