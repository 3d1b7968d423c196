"""veRL's own files from a released wheel, loaded without the rest of veRL.

Stand-ins, because the real ones import half of veRL: `verl.utils.device`, `unwrap_model` (Megatron's own), the result
class (a plain class with the same fields), and, where no GPU is, veRL's Triton kernel (log-softmax of the logits).
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from downstream.checkouts import loaded
from megatron.core.tensor_parallel import gather_from_tensor_model_parallel_region
from torch import Tensor


class CausalLMOutputForPPO(SimpleNamespace):
    """The fields of veRL's class."""


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, labels: Tensor, temperature: float, reduction: str, group: Any
) -> tuple[Tensor, Tensor]:
    """What veRL's kernel computes, and how it flattens: labels and hidden states each in their own order.

    Over several ranks, and like the kernel, the gradient of `hidden` is that of this rank's part of the vocabulary.
    """
    logits = (hidden.flatten(0, -2) @ weight.T).float() / temperature
    logits = gather_from_tensor_model_parallel_region(logits, group=group)
    log_softmax = logits.log_softmax(-1)
    log_probs = log_softmax.gather(-1, labels.reshape(-1, 1)).squeeze(-1)
    return log_probs, -(log_softmax.exp() * log_softmax).sum(-1)


@contextmanager
def verl_files(folder: str, *, kernel: bool = False) -> Iterator[Callable[[str], Any]]:
    """A function that imports `verl.models.mcore.<name>` of the wheel in `folder`; all of it is gone afterwards."""
    from megatron.core.utils import unwrap_model

    with loaded(folder, "verl", "verl.models.mcore"):
        stand_in("verl.utils.megatron_utils", unwrap_model=unwrap_model)
        stand_in("verl.utils.model", CausalLMOutputForPPO=CausalLMOutputForPPO)
        stand_in("verl.models.mcore.qwen2_5_vl.model", Qwen2_5VLModel=type(None))
        stand_in("verl.utils.device", **_devices())
        if not kernel:
            stand_in("verl.utils.kernel.linear_cross_entropy", linear_cross_entropy=linear_cross_entropy)
        util = _import("util")
        if hasattr(util, "logger"):
            util.logger.warning_once = util.logger.warning  # transformers adds it to every logger
        yield _import


@contextmanager
def verl_kernel(folder: str) -> Iterator[Any]:
    """The `linear_cross_entropy` of the wheel in `folder`: its own Triton kernel, for a GPU."""
    with loaded(folder, "verl", "verl.utils", {"verl.utils.device": _devices()}):
        yield importlib.import_module("verl.utils.kernel.linear_cross_entropy").linear_cross_entropy


def _devices() -> dict[str, Any]:
    return {
        "is_npu_available": False,
        "is_cuda_available": torch.cuda.is_available(),
        "get_device_capability": lambda: torch.cuda.get_device_capability(),
        "get_device_name": lambda: "cuda",
        "get_torch_device": lambda: torch.cuda,
    }


def _import(name: str) -> Any:
    return importlib.import_module(f"verl.models.mcore.{name}")


def stand_in(name: str, **values: Any) -> None:
    """A module of that name with those values."""
    module = ModuleType(name)
    vars(module).update(values)
    sys.modules[name] = module
