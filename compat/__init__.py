"""Replacements for downstream patches of Megatron Core, built on its official `output_processor` hook."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcore_unpatch.compat.hook.attach import attach, attach_selector, call_with_processor
    from mcore_unpatch.compat.hook.call import HookCall, Outputs, Processor
    from mcore_unpatch.compat.hook.context import HookContext
    from mcore_unpatch.compat.hook.errors import (
        AttachmentError,
        HookBypassedError,
        HookError,
        HookMissingError,
        HookSwallowedError,
        MissingContextError,
        UnsupportedHeadError,
        WrapperRefusesError,
    )
    from mcore_unpatch.compat.hook.find import HookPath, find_language_model, foreign_methods
    from mcore_unpatch.compat.hook.groups import ProcessGroups, resolve_groups
    from mcore_unpatch.compat.hook.head import gather_hidden
    from mcore_unpatch.compat.hook.head_inputs import HeadInputs
    from mcore_unpatch.compat.hook.legacy import LegacyPatchError
    from mcore_unpatch.compat.hook.plan import schedule_plan_with_processor
    from mcore_unpatch.compat.hook.processors import (
        AsTuple,
        Compose,
        Entropy,
        Logits,
        LogitStats,
        LogProbs,
        LogProbsAndEntropy,
        SelectedTokenCrossEntropy,
        TokenLoss,
        TopKLogits,
    )
    from mcore_unpatch.compat.hook.provide import Handle, provide_hook
    from mcore_unpatch.compat.ops.linear_kl import linear_kl
    from mcore_unpatch.compat.ops.linear_logprob import VocabOutput, linear_logprob, vocab_pass
    from mcore_unpatch.compat.packing.gather import gather_sequence, gather_shares, sum_over_ranks
    from mcore_unpatch.compat.packing.labels import next_token_labels
    from mcore_unpatch.compat.packing.layout import PackedLayout, plan_packing
    from mcore_unpatch.compat.packing.pack import Packer, pack_nested, pack_padded
    from mcore_unpatch.compat.packing.per_sequence import mean_per_sequence, sum_per_sequence
    from mcore_unpatch.compat.packing.pipeline import broadcast_from_last_stage, compute_on_last_stage, is_last_stage
    from mcore_unpatch.compat.packing.zigzag import zigzag_index, zigzag_merge, zigzag_split

# Public name -> the module here that defines it. Loaded on first use: the tool itself runs without torch.
_HOME = {
    "AsTuple": "hook.processors",
    "AttachmentError": "hook.errors",
    "Compose": "hook.processors",
    "Entropy": "hook.processors",
    "Handle": "hook.provide",
    "HeadInputs": "hook.head_inputs",
    "HookBypassedError": "hook.errors",
    "HookCall": "hook.call",
    "HookContext": "hook.context",
    "HookError": "hook.errors",
    "HookMissingError": "hook.errors",
    "HookPath": "hook.find",
    "HookSwallowedError": "hook.errors",
    "LegacyPatchError": "hook.legacy",
    "LogProbs": "hook.processors",
    "LogProbsAndEntropy": "hook.processors",
    "LogitStats": "hook.processors",
    "Logits": "hook.processors",
    "MissingContextError": "hook.errors",
    "Outputs": "hook.call",
    "PackedLayout": "packing.layout",
    "Packer": "packing.pack",
    "ProcessGroups": "hook.groups",
    "Processor": "hook.call",
    "SelectedTokenCrossEntropy": "hook.processors",
    "TokenLoss": "hook.processors",
    "TopKLogits": "hook.processors",
    "UnsupportedHeadError": "hook.errors",
    "VocabOutput": "ops.linear_logprob",
    "WrapperRefusesError": "hook.errors",
    "attach": "hook.attach",
    "attach_selector": "hook.attach",
    "broadcast_from_last_stage": "packing.pipeline",
    "call_with_processor": "hook.attach",
    "compute_on_last_stage": "packing.pipeline",
    "find_language_model": "hook.find",
    "foreign_methods": "hook.find",
    "gather_hidden": "hook.head",
    "gather_sequence": "packing.gather",
    "gather_shares": "packing.gather",
    "is_last_stage": "packing.pipeline",
    "linear_kl": "ops.linear_kl",
    "linear_logprob": "ops.linear_logprob",
    "mean_per_sequence": "packing.per_sequence",
    "next_token_labels": "packing.labels",
    "pack_nested": "packing.pack",
    "pack_padded": "packing.pack",
    "plan_packing": "packing.layout",
    "provide_hook": "hook.provide",
    "resolve_groups": "hook.groups",
    "schedule_plan_with_processor": "hook.plan",
    "sum_over_ranks": "packing.gather",
    "sum_per_sequence": "packing.per_sequence",
    "vocab_pass": "ops.linear_logprob",
    "zigzag_index": "packing.zigzag",
    "zigzag_merge": "packing.zigzag",
    "zigzag_split": "packing.zigzag",
}
_FROM_EXTRA = {"megatron", "torch", "triton"}

__all__ = [
    "AsTuple",
    "AttachmentError",
    "Compose",
    "Entropy",
    "Handle",
    "HeadInputs",
    "HookBypassedError",
    "HookCall",
    "HookContext",
    "HookError",
    "HookMissingError",
    "HookPath",
    "HookSwallowedError",
    "LegacyPatchError",
    "LogProbs",
    "LogProbsAndEntropy",
    "LogitStats",
    "Logits",
    "MissingContextError",
    "Outputs",
    "PackedLayout",
    "Packer",
    "ProcessGroups",
    "Processor",
    "SelectedTokenCrossEntropy",
    "TokenLoss",
    "TopKLogits",
    "UnsupportedHeadError",
    "VocabOutput",
    "WrapperRefusesError",
    "attach",
    "attach_selector",
    "broadcast_from_last_stage",
    "call_with_processor",
    "compute_on_last_stage",
    "find_language_model",
    "foreign_methods",
    "gather_hidden",
    "gather_sequence",
    "gather_shares",
    "is_last_stage",
    "linear_kl",
    "linear_logprob",
    "mean_per_sequence",
    "next_token_labels",
    "pack_nested",
    "pack_padded",
    "plan_packing",
    "provide_hook",
    "resolve_groups",
    "schedule_plan_with_processor",
    "sum_over_ranks",
    "sum_per_sequence",
    "vocab_pass",
    "zigzag_index",
    "zigzag_merge",
    "zigzag_split",
]


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
            f"{__name__}.{name} needs {missing}, which is not installed; run `pip install 'mcore-unpatch[compat]'`."
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
