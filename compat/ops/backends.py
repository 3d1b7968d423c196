"""Choosing the backend: by name, or by what the tensors and the machine allow."""

import warnings
from importlib.util import find_spec

import torch
from mcore_unpatch.compat.ops.seam import Backend
from mcore_unpatch.compat.ops.torch_backend import TorchBackend

NAMES = ("auto", "torch", "triton")
_warned: set[str] = set()


def choose_backend(name: str, device: torch.device) -> Backend:
    """The backend for `device`; asked for triton where it cannot run, say why once and use torch."""
    if name == "triton" and (reason := _why_not_triton(device)) and reason not in _warned:
        _warned.add(reason)
        warnings.warn(f"backend='triton' cannot run here, using 'torch': {reason}", RuntimeWarning, stacklevel=4)
    return TorchBackend()


def _why_not_triton(device: torch.device) -> str:
    if device.type != "cuda":
        return f"the tensors are on {device.type}, it needs a CUDA device"
    if find_spec("triton") is None:
        return "triton is not installed"
    return "this version has no triton kernels"
