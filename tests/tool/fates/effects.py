"""What a patch does to the library: its result beside the result of the same release without the patch."""

from collections.abc import Callable
from typing import Any

import torch


def relation(plain: Any, patched: Any) -> Any:
    """In words that two releases can share: equal, times a factor, or other."""
    if isinstance(plain, torch.Tensor) and isinstance(patched, torch.Tensor):
        return _of_tensors(plain.detach().double(), patched.detach().double())
    if isinstance(plain, (list, tuple)) and isinstance(patched, (list, tuple)) and len(plain) == len(patched):
        parts = [relation(one, other) for one, other in zip(plain, patched, strict=True)]
        return "equal" if all(part == "equal" for part in parts) else "other"
    if isinstance(plain, dict) and isinstance(patched, dict) and plain.keys() == patched.keys():
        return relation(list(plain.values()), list(patched.values()))
    return "equal" if plain is patched or (type(plain) is type(patched) and plain == patched) else "other"


def _of_tensors(plain: torch.Tensor, patched: torch.Tensor) -> str:
    if plain.shape != patched.shape:
        return "other"
    if torch.allclose(plain, patched, rtol=1e-5, atol=1e-7):
        return "equal"
    factor = float((patched * plain).sum() / plain.square().sum().clamp(min=1e-30))
    same_direction = torch.allclose(patched, factor * plain, rtol=1e-4, atol=1e-6)
    return f"times {factor:.3g}" if same_direction else "other"


def beside_plain(stage: Any, run: Callable[[], Any], effect: Callable[[Any, Any], Any] = relation) -> Any:
    """Run Megatron without the patch, load and install it, run again, and say what differs."""
    plain = run()
    module = stage.load()
    if hasattr(module, "install"):
        stage.install()
    return effect(plain, stage.call(run))
