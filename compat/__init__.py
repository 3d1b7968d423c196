"""Replacements for downstream patches of Megatron Core, built on its official `output_processor` hook."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcore_unpatch.compat.ops.linear_logprob import VocabOutput, linear_logprob, vocab_pass

# Public name -> the module here that defines it. Loaded on first use: the tool itself runs without torch.
_HOME = {
    "VocabOutput": "ops.linear_logprob",
    "linear_logprob": "ops.linear_logprob",
    "vocab_pass": "ops.linear_logprob",
}
_FROM_EXTRA = {"megatron", "torch", "triton"}

__all__ = ["VocabOutput", "linear_logprob", "vocab_pass"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _FROM_EXTRA:
            raise
        raise ImportError(
            f"{__name__}.{name} needs {missing}, which is not installed: pip install 'mcore-unpatch[compat]'"
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
