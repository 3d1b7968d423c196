"""The hook for a model whose `forward` has none (HybridModel), through official PyTorch hooks only.

The output layer is called once per MTP layer and then for the main output, whose input is what the decoder (or the MTP
block) returned: the same memory. There the layer gets a single row, and its result is replaced by logits over one word
per rank. When `forward` returns, the processor is called with the hidden states, and its result becomes the model's.
"""

import re
from dataclasses import dataclass, field
from threading import get_ident
from types import MappingProxyType
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

from . import find
from .call import HookError, HookSwallowedError, Processor, is_inference, resolve_groups

_PASSED_ON = (
    *("labels", "loss_mask", "input_ids", "position_ids", "attention_mask", "decoder_input"),
    *("inference_context", "packed_seq_params", "runtime_gather_output"),
)


@dataclass
class _HybridCall:
    """One forward under way."""

    processor: Processor
    keywords: dict[str, Any]
    gives_logits: bool  # from `forward`, and no loss
    decoded: Tensor | None = None
    at_main: bool = False
    taken: dict[str, Any] = field(default_factory=dict)


class OutputLayerTap:
    """The hooks on one model; removed when the last holder of the handle releases it."""

    def __init__(self, path: find.HookPath) -> None:
        model: Any = path.model
        self.model = model
        if model.config.defer_embedding_wgrad_compute:
            text = "config.defer_embedding_wgrad_compute needs the input of every call of the output layer, which the "
            raise HookError(f"{text}hook on this model replaces; set it to False.")
        self.names = find.argument_names(model)
        self.calls: find.PerThread[_HybridCall] = {}
        hooks: list[RemovableHandle] = [
            model.register_forward_pre_hook(self._begin, with_kwargs=True),
            model.register_forward_hook(self._finish),
            model.register_forward_hook(self._forget, always_call=True),
        ]
        if model.post_process:
            hooks += [
                model.decoder.register_forward_pre_hook(self._see_embedded, with_kwargs=True),
                model.decoder.register_forward_hook(self._see_decoded),
                model.output_layer.register_forward_pre_hook(self._enter_output_layer, with_kwargs=True, prepend=True),
                model.output_layer.register_forward_hook(self._leave_output_layer),
            ]
            if (mtp := getattr(model, "mtp", None)) is not None:
                hooks.append(mtp.register_forward_hook(self._see_decoded))
        self.handle = find.Handle()
        self.handle.on_removal(*(hook.remove for hook in hooks))

    # PyTorch registers a hook and then that it takes keywords: a thread that is in the model meanwhile, for somebody
    # else, may call it without. The same holds when it is removed.

    def _begin(self, model: Any, args: Any, kwargs: dict[str, Any] | None = None) -> Any:
        if kwargs is None:
            return None
        processor, context = (kwargs.get(name) for name in find.HOOK_KEYWORDS)
        kwargs = {name: value for name, value in kwargs.items() if name not in find.HOOK_KEYWORDS}
        self.calls.pop(get_ident(), None)
        if processor is not None and model.post_process:
            if is_inference():
                raise HookError("this model takes no output_processor in Megatron's inference mode; leave it out.")
            arguments = dict(zip(self.names, args, strict=False)) | kwargs
            keywords = {name: arguments.get(name) for name in _PASSED_ON} | {"context": context}
            for_mtp = model.config.mtp_num_layers or len(args) > len(self.names)
            gives_logits = not for_mtp or keywords["labels"] is None
            self.calls[get_ident()] = _HybridCall(processor, keywords, gives_logits)
            if not for_mtp:  # labels are for the loss alone, which the processor replaces
                return (), arguments | {"labels": None}
        return args, kwargs

    def _see_embedded(self, decoder: Module, args: Any, kwargs: dict[str, Any] | None = None) -> None:
        if (call := self.calls.get(get_ident())) is not None and kwargs is not None:
            call.keywords["decoder_input"] = args[0] if args else kwargs.get("hidden_states")

    def _see_decoded(self, module: Module, args: Any, output: Any) -> None:
        if (call := self.calls.get(get_ident())) is not None:
            call.decoded = output

    def _enter_output_layer(self, layer: Module, args: Any, kwargs: dict[str, Any] | None = None) -> Any:
        call = self.calls.get(get_ident())
        if call is None or call.decoded is None or kwargs is None:
            return None
        hidden, *rest = args or (kwargs.pop("input_"),)
        call.at_main = hidden.data_ptr() == call.decoded.data_ptr()
        if not call.at_main:
            return (hidden, *rest), kwargs
        call.taken = {"hidden_states": hidden, "output_weight": kwargs.get("weight")}
        if kwargs.get("weight") is None and layer.weight is None:  # given up for a value head
            kwargs["weight"] = hidden.new_zeros(layer.output_size_per_partition, hidden.shape[-1])
        weight = layer.weight if kwargs.get("weight") is None else kwargs["weight"]
        return (hidden[:1].detach().to(weight.dtype), *rest), kwargs

    def _leave_output_layer(self, layer: Module, args: Any, output: Any) -> Any:
        call = self.calls.get(get_ident())
        if call is None or not call.at_main:
            return None
        call.at_main = False
        hidden = call.taken["hidden_states"]
        group = resolve_groups(self.model).tp
        gathers = self.model.config.sequence_parallel and group is not None
        rows = hidden.shape[0] * (group.size() if gathers else 1)  # type: ignore[union-attr]
        return hidden.new_ones(rows, hidden.shape[1], 1), None

    def _finish(self, model: Any, args: Any, output: Any) -> Any:
        call = self.calls.pop(get_ident(), None)
        if call is None:
            return None
        if not call.taken:
            text = f"{type(model).__name__} returned without passing its decoder's output to output_layer, so the "
            raise HookSwallowedError(f"{text}processor never ran; remove the patch of the forward of model or layer.")
        own = find.HookPath((), model).own_output_methods(["forward"])
        if own and call.gives_logits:
            ones = model._scale_logits(call.taken["hidden_states"].new_ones(()))
            if not any(bool((leaf == ones).all()) for leaf in tree_leaves(output) if isinstance(leaf, Tensor)):
                text = f"{own[0]} changes the logits (soft-capped?), and the hook on this model runs after it"
                raise HookError(f"{text}, so the processor would not know; call the model without one.")
        return call.processor(
            **call.keywords,
            **call.taken,
            output_layer=model.output_layer,
            compute_language_model_loss=model.compute_language_model_loss,
            scale_logits=model._scale_logits,
            config=model.config,
        )

    def _forget(self, model: Module, args: Any, output: Any) -> None:
        """Drop the state of a call that failed, its tensors included."""
        self.calls.pop(get_ident(), None)


# A layer of a HybridModel is half a layer of a GPTModel: attention, or what follows it.
_HALVES = MappingProxyType({"input_layernorm": 0, "self_attention": 0, "pre_mlp_layernorm": 1, "mlp": 1})


def gpt_parameter_names(model: Module) -> dict[str, str]:
    """Of every name in the state of the HybridModel in `model`, the name of the same in a GPTModel of its layers.

    Its layers must be attention and MLP (or MoE) by turns, `*-` or `*E`. Of a pipeline stage, as of a GPTModel's, the
    layers count from 0.
    """
    return {name: _gpt_name(name) for name in find.find_language_model(model).model.state_dict()}


def _gpt_name(name: str) -> str:
    def whole(half: re.Match[str]) -> str:
        layers, number, part = half[1], int(half[2]), half[3]
        if _HALVES.get(part) != number % 2:
            raise ValueError(f"{name}: a GPTModel has no such layer; only `*-` and `*E`, by turns, have names there.")
        return f"{layers}{number // 2}.{part}"

    name = name.replace("decoder.final_norm.", "decoder.final_layernorm.")
    name = re.sub(r"^(decoder\.layers\.)(\d+)\.(\w+)", whole, name)
    return re.sub(r"(\.mtp_model_layer\.)layers\.\d+\.", r"\1", name)
