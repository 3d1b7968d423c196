"""veRL's `model_forward_fused` on the hook: log-probs and entropy without logits."""

from ..requirements import require_hook, say_once

require_hook(__name__, unpatched=True)

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from ..fused_head.problem import needed
from ..hook import call as hook
from ..hook.attach import call_along
from ..hook.find import INSTALLING, find_language_model
from ..hook.head import refuse_critic
from . import batches, installed
from .installed import FusedProcessor, Numbers


@dataclass
class FusedOutputProcessorContext:
    """The `output_processor_context` of `fused_output_processor`; a temperature tensor has one number, or `[b, s]`."""

    temperature: float | Tensor


def fused_output_processor(
    *,
    hidden_states: Tensor,
    output_layer: Any,
    output_weight: Tensor | None,
    labels: Tensor | None,
    context: Any,
    config: Any,
    numbers: Numbers = "verl",
    **others: Any,
) -> Any:
    """The `output_processor` of veRL 0.9: `log_probs` and `entropy` of every token, flat in the order of `labels`.

    `context` is anything with a `temperature`, or a `HookContext`. The keywords named here are enough to call it
    directly, but `numbers="megatron"` with MuP needs the hook's `scale_logits`, too.
    """
    say_once(__name__)
    installed.warn_where_kept("fused_output_processor", numbers, config)
    if numbers == "verl" and labels is not None and len(labels) > 1:
        raise installed.several_rows(labels, 'use partial(fused_output_processor, numbers="megatron")')
    if not isinstance(context, hook.HookContext | Mapping):
        if getattr(context, "temperature", None) is None:
            text = f"fused_output_processor found no temperature in its context ({type(context).__name__}); pass "
            text += "output_processor_context=FusedOutputProcessorContext(temperature=...) to the model."
            raise hook.MissingContextError(text)
        context = hook.HookContext(temperature=context.temperature)
    if numbers == "verl" or not config.use_mup:
        others = {**dict.fromkeys(hook.KEYWORDS), "scale_logits": lambda logits: logits, **others}
    named = {"hidden_states": hidden_states, "output_layer": output_layer, "output_weight": output_weight}
    processor = FusedProcessor(numbers, flat=True)
    return processor(**{**others, **named, "labels": labels, "context": context, "config": config})


def patch_fused_forward(model: Module, *, numbers: Numbers = "verl") -> None:
    """Return fused results from every forward with labels, until `unpatch_fused_forward`.

    A forward for inference or with its own `output_processor` is left alone. A second call only changes `numbers`:
    "megatron" are those of Megatron's own logits. With "verl" MuP does not scale the logits; with TP but no SP,
    hidden-state gradients are not summed over ranks; the last token of a sequence in a nested batch predicts the next
    token of the row; no MTP unless asked for; and a direct call takes one packed row and returns flat results.
    """
    say_once(__name__)
    path = installed.path_in(model)
    if path is None:
        return
    refuse_critic(getattr(path.model, "output_layer", None), remedy="do not call patch_fused_forward on it")
    installed.warn_where_kept("patch_fused_forward", numbers, path.model.config)
    installed.install(path).fused = numbers


def unpatch_fused_forward(model: Module) -> None:
    """Undo `patch_fused_forward`; does nothing if it was not called."""
    path = installed.path_in(model)
    state = None if path is None else installed.state_of(path)
    if state is not None:
        state.fused = None
        state.release()


def fused_forward_model_gen(vision_model: bool = False) -> Callable[..., Any]:
    """The fused forward for padded batches: `{"entropy": [b, s], "log_probs": [b, s]}`."""

    def fused_forward_model(
        model: Module,
        input_ids: Tensor,
        position_ids: Tensor | None,
        attention_mask: Tensor,
        labels: Tensor | None = None,
        labels_mask: Tensor | None = None,
        temperature: float | Tensor = 1.0,
        multi_modal_inputs: Mapping[str, Tensor] | None = None,
        sequence_parallel: bool | None = None,
        *,
        data_format: batches.DataFormat = "thd",
        mtp_enable_train: bool | None = None,
    ) -> Any:
        """All tensors `[b, s]`, labels aligned with the outputs; log-probs are 0 where `labels_mask` is false.

        Without labels, logits `[b, s, vocab / tp]`. `sequence_parallel` is read from the model. `temperature` may be
        one per sequence or per token. `mtp_enable_train`: also train MTP, on the labels that `labels_mask` selects;
        None: with Megatron's numbers, if `patch_postprocess` was called.
        """
        target = _FusedTarget(model)
        batch = batches.batch_of(input_ids, attention_mask, target.path.model.config, data_format)
        arguments = batches.vision_arguments(multi_modal_inputs, input_ids.device)
        if vision_model:
            # It inserts images into unpacked tokens, counts positions and packs later.
            arguments |= batch.arguments | {"input_ids": input_ids, "attention_mask": attention_mask}
            arguments["position_ids"] = None
        else:
            arguments |= batch.model_arguments(input_ids, position_ids)
        row = None if labels is None else batch.pack(labels)
        if row is not None and target.trains_mtp(mtp_enable_train):
            counted = attention_mask if labels_mask is None else labels_mask
            arguments |= {"labels": row, "loss_mask": batch.pack(counted).float()}
        temperature = _row_temperature(temperature, input_ids, batch)
        return target.results(batch, arguments, row, temperature, ("entropy", "log_probs"), labels_mask)

    return fused_forward_model


def fused_forward_model_engine(vision_model: bool = False) -> Callable[..., Any]:
    """The fused forward for nested batches: `{"log_probs": nested}`, and `"entropy"` if asked for."""

    def fused_forward_model_engine_inner(
        model: Module,
        input_ids: Tensor,
        labels: Tensor | None,
        multi_modal_inputs: Mapping[str, Tensor] | None,
        temperature: float | Tensor,
        calculate_entropy: bool,
        pad_token_id: int,
        cp_layout: batches.CpLayout = "zigzag",
        local_cp_size: int | None = None,
        router_padding_mask: Tensor | None = None,
        pad_to_length_bucket: int | None = None,
        *,
        data_format: batches.DataFormat = "thd",
        loss_mask: Tensor | None = None,
        mtp_enable_train: bool | None = None,
        mtp_loss_normalization_factor: float | None = None,
    ) -> Any:
        """Nested tensors `[b, ragged]`; labels are token ids and are shifted one to the left within each sequence here.

        With Megatron's numbers the log-prob of a sequence's last token is 0; without labels nested logits come back.
        `loss_mask`, nested like the tokens, selects the tokens of the MTP loss.
        """
        target = _FusedTarget(model)
        row: dict[str, Any] = {"local_cp_size": local_cp_size, "pad_to_length_bucket": pad_to_length_bucket}
        batch = batches.batch_of(input_ids, None, target.path.model.config, data_format, cp_layout=cp_layout, **row)
        arguments = batches.vision_arguments(multi_modal_inputs, input_ids.device)
        if vision_model:
            tokens, mask = batches.vision_tokens(input_ids, pad_token_id)
            arguments |= batch.arguments | {"input_ids": tokens, "attention_mask": mask, "position_ids": None}
        else:
            arguments |= batch.model_arguments(input_ids)
        if router_padding_mask is not None:
            arguments["padding_mask"] = router_padding_mask
        known = None
        if labels is not None:
            trains_mtp = target.trains_mtp(mtp_enable_train)
            if trains_mtp or target.numbers == "megatron":
                known = batch.pack(batches.next_in_sequence(labels, -100), fill=-100)
            if trains_mtp:
                counted = batches.next_in_sequence(torch.ones_like(labels) if loss_mask is None else loss_mask, 0)
                arguments |= {"labels": needed(known).clamp(min=0), "loss_mask": batch.pack(counted).float()}
                packed = arguments.get("packed_seq_params")
                if mtp_loss_normalization_factor is not None and packed is not None:
                    setattr(packed, installed.NORMALIZATION_FACTOR, mtp_loss_normalization_factor)
            if target.numbers == "verl":
                known = batches.labels_like_verl(batch, labels)
        temperature = _row_temperature(temperature, input_ids, batch)
        names = ("log_probs", "entropy") if calculate_entropy else ("log_probs",)
        return target.results(batch, arguments, known, temperature, names)

    return fused_forward_model_engine_inner


fused_forward_no_padding_gen = fused_forward_model_engine  # its name in veRL 0.7


class _FusedTarget:
    """The model of one call: the way to its language model, what the shims installed there, and whose numbers."""

    def __init__(self, model: Module) -> None:
        self.model, self.path = model, find_language_model(model)
        self.state = installed.state_of(self.path)
        self.numbers: Numbers = (self.state.fused if self.state is not None else None) or "verl"

    def results(
        self,
        batch: batches.Batch,
        arguments: dict[str, Any],
        labels: Tensor | None,
        temperature: float | Tensor,
        names: tuple[str, ...],
        mask: Tensor | None = None,
    ) -> Any:
        """Those of `names`, in the shape of the batch; without labels logits. On a stage without output, its own."""
        say_once(__name__)
        if labels is None:
            out = self.model(**{"labels": None, **arguments})
        else:
            processor = FusedProcessor(self.numbers, entropy="entropy" in names)
            out = self._call(processor, hook.HookContext(labels=labels, temperature=temperature), arguments)
        if not self.path.has_output:
            return out
        if labels is None:
            return batch.unpack(out)
        results = {name: batch.unpack(getattr(out, name)) for name in names}
        if mask is not None:
            results["log_probs"] = results["log_probs"].masked_fill(mask == 0, 0.0)
        return results

    def _call(self, processor: FusedProcessor, context: hook.HookContext, keywords: dict[str, Any]) -> Any:
        """The model with `processor` at its output: by keyword where nothing is in the way, else installed."""
        path, model = self.path, self.model
        config: Any = path.model.config
        if path.passes_keywords and not config.mtp_num_layers and not hook.is_inference(keywords):
            installed.refuse_patches(path)
            return call_along(path, model, processor, hook.complete_context(context, path.model), (), keywords)
        with INSTALLING:
            state = installed.install(path)
            state.calls += 1
        state.requests[get_ident()] = (processor, context)
        try:
            result = model(**keywords)
        finally:
            unserved = state.requests.pop(get_ident(), None) is not None
            with INSTALLING:
                state.calls -= 1
                state.release()
        if unserved:
            names = " > ".join(type(wrapper).__name__ for wrapper in path.wrappers) or "the call"
            text = "returned without calling {0}, so the processor never ran; pass {0} itself."
            raise hook.HookSwallowedError(f"{names} {text.format(type(path.model).__name__)}")
        return result

    def trains_mtp(self, asked: bool | None) -> bool:
        """Whether this call has an MTP loss."""
        if asked is not None:
            return asked
        training = self.path.model.training and torch.is_grad_enabled()
        wanted = self.state is not None and self.state.logits is not None and training
        if wanted and self.numbers == "verl":
            text = (
                "MTP is not trained, because veRL's fused forward leaves it out; pass mtp_enable_train=True, or call "
            )
            warnings.warn(f'{text}patch_fused_forward(model, numbers="megatron").', UserWarning, stacklevel=3)
            return False
        return wanted


def _row_temperature(temperature: float | Tensor, tokens: Tensor, batch: batches.Batch) -> float | Tensor:
    """Return a single value as it is; spread one per sequence over its tokens, and pack one per token."""
    if not isinstance(temperature, Tensor):
        return temperature
    if not temperature.is_nested and temperature.numel() == 1:
        return float(temperature) if temperature.is_cpu else temperature.reshape(())
    temperature = temperature.to(tokens.device)
    if tokens.is_nested and not temperature.is_nested:
        offsets: Tensor = tokens.offsets()  # type: ignore[attr-defined]
        spread = temperature.flatten().repeat_interleave(offsets.diff(), output_size=len(tokens.values()))
        temperature = torch.nested.nested_tensor_from_jagged(spread, offsets)
    elif not tokens.is_nested:
        per_row = temperature[:, None] if temperature.dim() == 1 else temperature
        if len(per_row) != len(tokens) or per_row.dim() != 2 or per_row.shape[1] not in (1, tokens.shape[1]):
            text = f"a number, one per sequence or one per token of {list(tokens.shape)}"
            raise ValueError(f"temperature: expected {text}, got {list(temperature.shape)}")
        temperature = per_row.expand(tokens.shape)
    return batch.pack(temperature, fill=1)
