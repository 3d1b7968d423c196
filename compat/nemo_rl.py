"""NeMo RL's fused linear log-probs on Megatron's output hook; replaces the class patch of `GPTModel.forward`."""

from .requirements import require_hook, say_once

require_hook(__name__, unpatched=True)

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args
from weakref import WeakKeyDictionary, WeakSet

import torch
from megatron.core.models.common.language_module.language_module import LanguageModule
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.nn import Module
from torch.nn.modules.module import register_module_module_registration_hook

from .fused_head.linear_logprob import linear_logprob
from .fused_head.settings import LogprobOptions, check_choice, check_counts, check_vocab_range
from .fused_head.torch_backend import chunk_tile_bytes
from .hook import call as hook, find
from .hook.attach import Watched, hook_keywords, provide_hook, require_called
from .hook.head import HeadOptions, head_pass
from .packing import Gradient, gather_sequence, next_token_labels, row_bounds


def from_parallel_hidden_states_to_logprobs(
    tensor_parallel_hidden_states: Tensor,
    output_weight_layer: Tensor,
    runtime_gather_output: bool | None,
    target: Tensor,
    vocab_start_index: int,
    vocab_end_index: int,
    tp_group: ProcessGroup,
    inference_only: bool = False,
    cp_group: ProcessGroup | None = None,
    chunk_size: int | None = None,
    *,
    temperature: float | Tensor = 1.0,
    packed_seq_params: Any = None,
    cp_gradient: Gradient = "summed",
) -> Tensor:
    """`[b, s - 1]` fp32 log-probs of the token after each of `target` `[b, s]`, from `[s, b, h]` or `[s / tp, b, h]`.

    Under context parallelism hidden states and `target` are this rank's share, and the result is the whole sequence.
    """
    say_once(__name__, "linear_logprob")
    hidden, weight = tensor_parallel_hidden_states, output_weight_layer
    if not isinstance(target, Tensor):
        text = f"target: expected token ids [b, s], got {type(target).__name__}"
        raise TypeError(f"{text}; use the arguments of NeMo RL 0.7.0 and later (0.6.0 had output_weight as the third).")
    if hidden.shape[0] not in (target.shape[1], target.shape[1] // tp_group.size()):
        expected = f"[s, b, h] or [s / tp, b, h] with s = {target.shape[1]} (from target) and tp = {tp_group.size()}"
        raise ValueError(f"tensor_parallel_hidden_states: expected {expected}, got {list(hidden.shape)}")
    check_vocab_range(vocab_start_index, vocab_end_index, weight, tp_group)
    shared = hidden.shape[0] != target.shape[1]
    labels = next_token_labels(target, packed_seq_params=packed_seq_params, cp_group=cp_group, fill=NO_TOKEN)
    with torch.set_grad_enabled(torch.is_grad_enabled() and not inference_only):
        if shared:
            hidden = gather_from_sequence_parallel_region(hidden, tensor_parallel_output_grad=True, group=tp_group)
        log_probs, _ = linear_logprob(
            hidden,
            weight,
            labels.T,
            temperature=temperature.T if isinstance(temperature, Tensor) and temperature.dim() == 2 else temperature,
            tp_group=tp_group,
            ignore_index=NO_TOKEN,
            options=LogprobOptions(
                max_rows=labels.numel(),  # all: only ends of sequences have none, and for these the host need not wait
                reduce_hidden_grad=not shared,
                out_of_vocab_grad="legacy",
                tile_bytes=chunk_tile_bytes(chunk_size, hidden.shape[1], weight),
            ),
        )
        return whole_but_last(log_probs.T.contiguous(), packed_seq_params, cp_group, cp_gradient)


NO_TOKEN = -(1 << 31)  # stands where no token follows; no label of a caller is it, and no gradient comes from there
# Megatron's own logits, or what NeMo RL's patch of `GPTModel.forward` makes of them.
Numbers = Literal["megatron", "nemo_rl"]


@dataclass(frozen=True, kw_only=True)
class NextTokenLogProbs:
    """`[b, s - 1]` fp32: at position i the log-prob of token i + 1. With `entropy`, `Outputs(log_probs, entropy)`.

    `labels` are token ids, shifted by one here, within each packed sequence: where the next token belongs to another
    one, both results are 0. Under context parallelism every rank gets the whole sequence; `cp_gradient="summed"` sums
    the gradients over the ranks, for a loss divided by `cp`; `"own"` is for a loss that is not. `chunk_size` bounds
    temporaries to the fp32 logits of so many positions. `numbers="nemo_rl"`: MuP does not scale the logits, and without
    context parallelism a packed row counts as one sequence.
    """

    chunk_size: int | None = None
    temperature: float | Tensor = 1.0
    entropy: bool = False
    cp_gradient: Gradient = "summed"
    numbers: Numbers = "megatron"

    def __post_init__(self) -> None:
        check_choice("numbers", self.numbers, *get_args(Numbers))
        check_choice("cp_gradient", self.cp_gradient, "own", "summed")
        check_counts(chunk_size=(self.chunk_size, 1))
        _ = self.options  # checks the temperature

    @cached_property
    def options(self) -> HeadOptions:
        """How the head is read."""
        return HeadOptions(
            temperature=self.temperature,
            shift="next_token",
            scale_logits=self.numbers == "megatron",
            ignore_index=NO_TOKEN,
            out_of_vocab_grad="legacy",
        )

    def __call__(self, **keywords: Any) -> Any:
        """One pass over the vocabulary; without a graph in a call for inference."""
        call = hook.HookCall.of(keywords)
        context = hook.HookContext.of(call.context)
        tokens = next((one for one in (context.labels, call.labels) if one is not None), call.input_ids)
        call = replace(call, input_ids=tokens, context=replace(context, labels=None))
        cp_group = hook.sequence_group(call.packed_seq_params, context.groups or hook.resolve_groups(), call.config)
        one_sequence = self.numbers == "nemo_rl" and (cp_group is None or cp_group.size() == 1)
        tile_bytes = chunk_tile_bytes(self.chunk_size, call.hidden_states.shape[1], call.weight)
        options = replace(self.options, tile_bytes=tile_bytes)
        asked = ("logprobs", "entropy")[: 1 + self.entropy]
        with torch.set_grad_enabled(torch.is_grad_enabled() and call.inference_context is None):
            out = head_pass(replace(call, packed_seq_params=None) if one_sequence else call, options, asked)
            packed, how = call.packed_seq_params, self.cp_gradient
            whole = [whole_but_last(getattr(out, name), packed, cp_group, how) for name in asked]
        return hook.Outputs(zip(("log_probs", "entropy"), whole, strict=True)) if self.entropy else whole[0]


def whole_but_last(share: Tensor, packed: Any, cp_group: ProcessGroup | None, gradient: Gradient) -> Tensor:
    """The shares of all context-parallel ranks as one row per sequence, without the last position."""
    return gather_sequence(share, cp_group, gradient, None if packed is None else row_bounds(packed))[:, :-1]


_SHIM = "mcore_unpatch.compat.nemo_rl"
FLAG = "return_logprobs_for_linear_ce_fusion"
_PROCESSOR, _CONTEXT = find.HOOK_KEYWORDS


def serve(model: Module) -> None:
    """Make the language model `model` accept the flag and the processor; a second call does nothing."""
    find.refuse_patched(_SHIM, model)
    if model not in _served:
        _served[model] = find.OneCallFields()
        # A HybridModel gets its hook here: its own must come before ours on the way out.
        provide_hook(model)
        model.register_forward_pre_hook(_translate, with_kwargs=True, prepend=True)
        model.register_forward_hook(_check_called, with_kwargs=True)
        model.register_forward_hook(_restore, always_call=True)


_served: WeakKeyDictionary[Module, find.OneCallFields] = WeakKeyDictionary()
_watched: WeakSet[Module] = WeakSet()


def _ours(kwargs: dict[str, Any]) -> Watched | None:
    processor = kwargs.get(_PROCESSOR)
    return processor if isinstance(processor, Watched) and isinstance(processor.processor, NextTokenLogProbs) else None


def _translate(model: Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    kwargs = dict(kwargs)
    _served[model].begin()
    if kwargs.pop(FLAG, False):
        if kwargs.get(_PROCESSOR) is not None:
            raise hook.AttachmentError(f"this call passes both {FLAG} and another output_processor; pass only one.")
        fused = NextTokenLogProbs(chunk_size=_flag.get("chunk_size"), numbers="nemo_rl")
        kwargs[_PROCESSOR] = Watched(fused, find.find_language_model(model))
        config: Any = model.config
        kept = ["MTP layers are not trained"] * bool(config.mtp_num_layers)
        kept += ["the logits are not scaled by MuP's factor"] * bool(config.use_mup)
        if kept:
            text = f"{FLAG} keeps NeMo RL's numbers: {'; '.join(kept)}. For Megatron's numbers, pass "
            warnings.warn(f"{text}**linear_ce_fusion_kwargs(model) instead.", UserWarning, stacklevel=2)
    watched = _ours(kwargs)
    if watched is None:
        return args, kwargs
    find.refuse_patched(_SHIM, model)
    watched.called = False
    names = find.argument_names(model)
    kwargs |= zip(names, args, strict=False)
    if kwargs.get("labels") is None:
        raise ValueError("labels are missing, and linear CE fusion needs them; pass labels=input_ids to the model.")
    context = replace(hook.HookContext.of(kwargs.get(_CONTEXT)), labels=kwargs["labels"])
    kwargs[_CONTEXT] = hook.complete_context(context, model)
    if model.config.mtp_num_layers:  # type: ignore[union-attr]
        if watched.processor.numbers == "nemo_rl":  # type: ignore[attr-defined]
            _served[model].leave_out_mtp(model, kwargs, names)
        else:
            kwargs["labels"], kwargs["loss_mask"] = _mtp_labels(model, kwargs)
    return (), kwargs


def _mtp_labels(model: Module, kwargs: dict[str, Any]) -> tuple[Tensor | None, Tensor | None]:
    """Labels and loss mask as Megatron's MTP loss expects them: those of the next token, not the token's own."""
    mask = kwargs.get("loss_mask")
    if not (model.training and torch.is_grad_enabled()):
        return None, mask
    labels, packed = kwargs["labels"], kwargs.get("packed_seq_params")
    group = hook.sequence_group(packed, kwargs[_CONTEXT].groups, model.config)
    rows = (labels, torch.ones_like(labels) if mask is None else mask)
    shifted = [next_token_labels(row, packed_seq_params=packed, cp_group=group, fill=0) for row in rows]
    return shifted[0], shifted[1]


def _forget(wrapper: Module, args: Any, kwargs: dict[str, Any]) -> None:
    if (watched := _ours(kwargs)) is not None:
        watched.called = False


def _check_called(model: Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
    if (watched := _ours(kwargs)) is not None:
        path = find.find_language_model(model)
        require_called(watched, path)
        if not path.wrappers:
            watched.check_output(model, args, output)


def _restore(model: Module, args: Any, output: Any) -> None:
    _served[model].restore()


# What `patch_gpt_model_forward_for_linear_ce_fusion` set: the chunk size of calls that pass none, and PyTorch's handle.
_flag: dict[str, Any] = {}


def patch_gpt_model_forward_for_linear_ce_fusion(*, chunk_size: int) -> None:
    """Make models built or wrapped from now on accept `return_logprobs_for_linear_ce_fusion=True`.

    No class is patched: PyTorch's module registration hook sees each new language model. For one that was built and
    wrapped before, use `linear_ce_fusion_kwargs`. A second call changes the chunk size.
    """
    say_once(__name__)
    check_counts(chunk_size=(chunk_size, 1))
    _flag["chunk_size"] = chunk_size
    if "handle" not in _flag:
        _flag["handle"] = register_module_module_registration_hook(_serve_new_models)


def unpatch_gpt_model_forward_for_linear_ce_fusion() -> None:
    """Make models built from now on reject the flag again; those built before still accept it."""
    if "handle" in _flag:
        _flag["handle"].remove()
    _flag.clear()


def linear_ce_fusion_kwargs(model: Module, **options: Any) -> dict[str, Any]:
    """The keywords for `model(..., labels=input_ids, **keywords)` that return log-probs `[b, s - 1]`, as the flag does.

    `model` is what will be called, wrappers and all; the options are those of `NextTokenLogProbs`, and `chunk_size`
    may come from `patch_gpt_model_forward_for_linear_ce_fusion`. NeMo RL's numbers have no MTP loss.
    """
    say_once(__name__)
    path = find.find_language_model(model)
    find.require_open_wrappers(path)
    serve(path.model)
    if path.wrappers and model not in _watched:  # a wrapper in between may drop the processor: a later call then raises
        _watched.add(model)
        model.register_forward_pre_hook(_forget, with_kwargs=True)
        model.register_forward_hook(_check_called, with_kwargs=True)
    processor = NextTokenLogProbs(**{"chunk_size": _flag.get("chunk_size"), **options})
    return hook_keywords(Watched(processor, path), hook.HookContext())


def _serve_new_models(module: Module, name: str, submodule: Module | None) -> None:
    """A model that cannot have the hook, such as BERT, is left alone."""
    for model, complete in ((submodule, True), (module, False)):  # being wrapped, or under construction
        if isinstance(model, LanguageModule):
            find.refuse_patched(_SHIM, model)
            path = find.find_language_model(model)
            if (path.has_hook and not path.is_hybrid) or (path.is_hybrid and complete):
                serve(path.model)
            return
