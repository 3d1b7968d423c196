"""Turns a call in NeMo RL's form into a call with the hook, by official forward hooks; no method is replaced."""

import warnings
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor
from torch.nn import Module

from mcore_unpatch.compat.hook.attach import Watched, provide_hook, require_called
from mcore_unpatch.compat.hook.context import HookContext, complete_context
from mcore_unpatch.compat.hook.errors import AttachmentError
from mcore_unpatch.compat.hook.find import HOOK_KEYWORDS, argument_names, find_language_model, refuse_patched
from mcore_unpatch.compat.hook.groups import sequence_group
from mcore_unpatch.compat.hook.one_call import OneCallFields
from mcore_unpatch.compat.nemo_rl.processor import NextTokenLogProbs

_SHIM = "mcore_unpatch.compat.nemo_rl"
FLAG = "return_logprobs_for_linear_ce_fusion"
_PROCESSOR, _CONTEXT = HOOK_KEYWORDS


class Fusion:
    """The chunk size of calls that do not pass one."""

    chunk_size: int | None = None


def serve_if_possible(model: Module) -> None:
    """`serve`, except for a model that cannot have the hook, such as BERT, which is left alone."""
    refuse_patched(_SHIM, model)
    path = find_language_model(model)
    if path.has_hook or path.is_hybrid:
        serve(path.model)


def serve(model: Module) -> None:
    """Make the language model `model` accept the flag and the processor; a second call does nothing."""
    refuse_patched(_SHIM, model)
    if model not in _served:
        _served[model] = OneCallFields()
        # A HybridModel gets its hook here: its own must come before ours on the way out.
        provide_hook(model)
        model.register_forward_pre_hook(_translate, with_kwargs=True, prepend=True)
        model.register_forward_hook(_check_called, with_kwargs=True)
        model.register_forward_hook(_restore, always_call=True)


def watch(wrapper: Module) -> None:
    """Raise in a later call if a wrapper between `wrapper` and the language model drops the processor."""
    if wrapper not in _watched:
        _watched.add(wrapper)
        wrapper.register_forward_pre_hook(_forget, with_kwargs=True)
        wrapper.register_forward_hook(_check_called, with_kwargs=True)


_served: WeakKeyDictionary[Module, OneCallFields] = WeakKeyDictionary()
_watched: WeakSet[Module] = WeakSet()


def _ours(kwargs: dict[str, Any]) -> Watched | None:
    processor = kwargs.get(_PROCESSOR)
    return processor if isinstance(processor, Watched) and isinstance(processor.processor, NextTokenLogProbs) else None


def _translate(model: Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    kwargs = dict(kwargs)
    _served[model].begin()
    if kwargs.pop(FLAG, False):
        if kwargs.get(_PROCESSOR) is not None:
            raise AttachmentError(f"this call passes both {FLAG} and another output_processor; pass only one.")
        kwargs[_PROCESSOR] = Watched(NextTokenLogProbs(chunk_size=Fusion.chunk_size, numbers="nemo_rl"))
        _warn_where_kept(model.config)
    watched = _ours(kwargs)
    if watched is None:
        return args, kwargs
    refuse_patched(_SHIM, model)
    watched.called = False
    names = argument_names(model)
    kwargs |= zip(names, args, strict=False)
    if kwargs.get("labels") is None:
        raise ValueError("labels are missing, and linear CE fusion needs them; pass labels=input_ids to the model.")
    context = replace(HookContext.of(kwargs.get(_CONTEXT)), labels=kwargs["labels"])
    kwargs[_CONTEXT] = complete_context(context, model)
    if model.config.mtp_num_layers:  # type: ignore[union-attr]
        if watched.processor.numbers == "nemo_rl":  # type: ignore[attr-defined]
            _served[model].leave_out_mtp(model, kwargs, names)
        else:
            kwargs["labels"], kwargs["loss_mask"] = _mtp_labels(model, kwargs)
    return (), kwargs


def _warn_where_kept(config: Any) -> None:
    """Warn if NeMo RL's numbers, which the flag gives, differ from Megatron's for this configuration."""
    kept = ["MTP layers are not trained"] if config.mtp_num_layers else []
    kept += ["the logits are not scaled by MuP's factor"] if getattr(config, "use_mup", False) else []
    if kept:
        text = f"{FLAG} keeps NeMo RL's numbers: {'; '.join(kept)}. For Megatron's numbers, pass "
        warnings.warn(f"{text}**linear_ce_fusion_kwargs(model) instead.", UserWarning, stacklevel=2)


def _mtp_labels(model: Module, kwargs: dict[str, Any]) -> tuple[Tensor | None, Tensor | None]:
    """Labels and loss mask as Megatron's MTP loss expects them: those of the next token, not the token's own."""
    mask = kwargs.get("loss_mask")
    if not (model.training and torch.is_grad_enabled()):
        return None, mask
    from megatron.core.transformer.multi_token_prediction import roll_tensor

    labels, packed = kwargs["labels"], kwargs.get("packed_seq_params")
    group = sequence_group(packed, kwargs[_CONTEXT].groups, model.config)
    how = {"shifts": -1, "dims": -1, "cp_group": group, "packed_seq_params": packed}
    mask = torch.ones_like(labels) if mask is None else mask
    return roll_tensor(labels, **how)[0], roll_tensor(mask, **how)[0]


def _forget(wrapper: Module, args: Any, kwargs: dict[str, Any]) -> None:
    if (watched := _ours(kwargs)) is not None:
        watched.called = False


def _check_called(model: Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
    if (watched := _ours(kwargs)) is not None:
        require_called(watched, find_language_model(model))


def _restore(model: Module, args: Any, output: Any) -> None:
    _served[model].restore()
