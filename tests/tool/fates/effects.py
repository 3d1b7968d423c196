"""What a patch does to the library: its result beside the result of the same release without the patch."""

from collections.abc import Callable
from typing import Any

import torch


def relation(plain: Any, patched: Any) -> Any:
    """In words that two releases can share: equal, times a factor, or other by how much.

    The models here give the same numbers on every release, so that a patch with the same effect differs by the same.
    """
    if _tensors(plain) and _tensors(patched) and len(plain) == len(patched):
        plain, patched = (torch.cat([tensor.detach().flatten() for tensor in parts]) for parts in (plain, patched))
    if isinstance(plain, torch.Tensor) and isinstance(patched, torch.Tensor):
        return _of_tensors(plain.detach().double(), patched.detach().double())
    if isinstance(plain, list | tuple) and isinstance(patched, list | tuple) and len(plain) == len(patched):
        return [relation(one, other) for one, other in zip(plain, patched, strict=True)]
    same = plain is patched or (type(plain) is type(patched) and plain == patched)
    return "equal" if same else f"{plain} and {patched}"


def _tensors(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(value, torch.Tensor) for value in values)


def _of_tensors(plain: torch.Tensor, patched: torch.Tensor) -> str:
    if plain.shape != patched.shape:
        return f"{tuple(plain.shape)} and {tuple(patched.shape)}"
    if torch.allclose(plain, patched, rtol=1e-5, atol=1e-7):
        return "equal"
    factor = float((patched * plain).sum() / plain.square().sum().clamp(min=1e-30))
    if torch.allclose(patched, factor * plain, rtol=1e-4, atol=1e-6):
        return f"times {factor:.3g}"
    return f"other by {float((patched - plain).abs().mean()):.3g}"


def beside_plain(stage: Any, run: Callable[[], Any], effect: Callable[[Any, Any], Any] = relation) -> Any:
    """Run Megatron without the patch, load and install it, run again, and say what differs."""
    plain = run()
    module = stage.load()
    if hasattr(module, "install"):
        stage.install()
    return effect(plain, stage.call(run))
