"""What the veRL shims installed on one language model: a single attachment that serves them all.

Multi-token prediction (MTP) is veRL's: without labels there is none, whereas Megatron 0.19 makes some of `input_ids`.
"""

import inspect
import warnings
from collections import OrderedDict
from copy import copy
from dataclasses import dataclass
from functools import cache
from threading import get_ident
from typing import Any, Literal, get_args

from megatron.core.config_logger import has_config_logger_enabled, log_config_to_disk
from torch import Tensor
from torch.nn import Module
from torch.utils.hooks import RemovableHandle

from ..fused_head.settings import check_choice
from ..hook import find
from ..hook.attach import Attachment, attach_along, installed_on
from ..hook.call import HookCall, HookError, Logits, Outputs, Processor, is_inference
from ..hook.head import HeadOptions, head_pass

Numbers = Literal["verl", "megatron"]


def warn_where_kept(shim: str, numbers: Numbers, config: Any, *, logits_alone: bool = False) -> None:
    """Warn if veRL's numbers differ from Megatron's for a model of this configuration; raise if it is neither."""
    check_choice("numbers", numbers, *get_args(Numbers))
    if numbers != "verl":
        return
    kept = ["the logits are not scaled by MuP's factor"] if config.use_mup else []
    ranks = config.tensor_model_parallel_size
    if ranks > 1 and not config.sequence_parallel and not logits_alone:
        others = f"the {ranks} tensor-parallel ranks"
        kept.append(f"without sequence parallelism, hidden-state gradients are not summed over {others}")
    if kept:
        text = f"{shim} keeps veRL's numbers: {'; '.join(kept)}. Pass numbers=\"megatron\" for Megatron's."
        warnings.warn(text, UserWarning, stacklevel=3)


def several_rows(labels: Tensor, instead: str) -> ValueError:
    """The error for a call with veRL's numbers in a shape for which its kernel is wrong."""
    text = f"labels {list(labels.shape)}: with several rows, veRL's kernel pairs labels with the hidden states of other"
    return ValueError(f"{text} tokens; pass one packed row, or {instead}.")


@dataclass(frozen=True)
class FusedProcessor:
    """`log_probs`, `entropy` (`[b, s]` fp32, of all tokens) and the decoder's `hidden_states`, from one pass.

    With veRL's numbers as its kernel does it, which neither scales (MuP) nor adds up the ranks' parts of the hidden
    gradient. `flat`: `[b * s]` in the order of the labels, as that returns them.
    """

    numbers: Numbers
    entropy: bool = True
    flat: bool = False

    def __call__(self, **keywords: Any) -> Any:
        """Run the pass."""
        call = HookCall.of(keywords)
        out = head_pass(call, _HOW[self.numbers], {"logprobs", "entropy"} if self.entropy else {"logprobs"})
        if has_config_logger_enabled(call.config):  # as Megatron logs them with logits
            logged = ("input_ids", "position_ids", "attention_mask", "decoder_input")
            values = {name: getattr(call, name) for name in logged}
            values |= {"logprobs": out.logprobs, "entropy": out.entropy}
            log_config_to_disk(call.config, OrderedDict(values), prefix="input_and_logits")
        results = [one.flatten() if self.flat and one is not None else one for one in (out.logprobs, out.entropy)]
        return _output_class()(hidden_states=call.hidden_states, log_probs=results[0], entropy=results[1])


_HOW: dict[Numbers, HeadOptions] = {
    "megatron": HeadOptions(ignore_index=None),
    "verl": HeadOptions(ignore_index=None, scale_logits=False, reduce_hidden_grad=False),
}


@cache
def _output_class() -> type[Any]:
    try:
        from verl.utils.model import CausalLMOutputForPPO
    except ImportError:  # no veRL here, or one without what it needs itself
        return Outputs
    output: type[Any] = CausalLMOutputForPPO
    return output


Request = tuple[Processor, Any]
# veRL 0.9 leaves it on the packed parameters where gradients are divided by routed instead of loss tokens.
NORMALIZATION_FACTOR = "_verl_mtp_loss_normalization_factor"


class Installed:
    """The veRL shims on one model: state says which are active; all share the same hooks."""

    def __init__(self, path: find.HookPath) -> None:
        self.model: Any = path.model
        self.fused: Numbers | None = None  # whose numbers; None: not on
        self.logits: Numbers | None = None
        self.calls = 0  # of those that ask for something, in all threads
        self.requests: find.PerThread[Request] = {}
        self.fields = find.OneCallFields()
        self.mtp_products_left = 0
        self.detached_head: RemovableHandle | None = None
        self.handle: find.Handle = attach_along([path], self._begin, Installed, self._end)

    def release(self) -> None:
        """Remove the hooks if no shim is active any more."""
        with find.INSTALLING:
            if self.fused is None and self.logits is None and self.calls == 0:
                self.let_mtp_update_head(True)
                self.fields.restore()  # after an interrupt (Ctrl-C), which runs no hook
                self.handle.remove()

    def let_mtp_update_head(self, value: bool) -> None:
        """Whether the MTP loss has a gradient for the LM head."""
        if self.detached_head is not None:
            self.detached_head.remove()
            self.detached_head = None
        if not value and (layer := getattr(self.model, "output_layer", None)) is not None:
            self.detached_head = layer.register_forward_pre_hook(self._detach_head, with_kwargs=True)

    def _begin(self, keywords: dict[str, Any]) -> Request | None:
        """Choose the processor of one call, and prepare its MTP."""
        self.fields.begin()
        if self.model.config.mtp_num_layers and not is_inference():
            unasked = get_ident() not in self.requests and keywords.get("output_processor") is None
            if keywords.get("labels") is None or (unasked and self.fused == "verl"):  # as in veRL's fused forward
                self.fields.leave_out_mtp(self.model, keywords, find.argument_names(self.model))
            else:
                self._with_mtp(keywords.get("packed_seq_params"))
        temperature = keywords.pop("temperature", None) if self.fused is not None else None
        request = self.requests.pop(get_ident(), None)
        if is_inference(keywords) or keywords.get("output_processor") is not None:
            return None
        if request is not None:
            return request
        labels = keywords.get("labels")
        if self.fused is not None and labels is not None:
            flat = self.fused == "verl"
            if flat and len(labels) > 1:
                raise several_rows(labels, 'call patch_fused_forward(model, numbers="megatron") for those of every row')
            return FusedProcessor(self.fused, flat=flat), {"temperature": temperature}
        if self.logits == "verl" and self.model.config.use_mup:
            return _unscaled_logits, None
        return None if self.logits is None or labels is None else (Logits(), None)

    def _end(self) -> None:
        self.fields.restore()
        self.mtp_products_left = 0

    def _with_mtp(self, packed_seq_params: Any) -> None:
        model, config = self.model, self.model.config
        if model.training and config.recompute_granularity == "full" and not all(map(can_recompute, mtp_layers(model))):
            text = (
                "config.recompute_granularity='full' with MTP: this megatron-core cannot recompute an MTP layer; call "
            )
            text += "mcore_unpatch.compat.verl.mtp_patch.patch_mtp_layer_checkpointed_forward(model), or use 0.19."
            raise HookError(text)
        factor = getattr(packed_seq_params, NORMALIZATION_FACTOR, None)
        if factor is not None and config.calculate_per_token_loss:
            if factor <= 0:
                raise ValueError(f"{NORMALIZATION_FACTOR} must be positive, not {factor}.")
            self.fields.configure(model, "mtp_loss_scaling_factor", factor * config.mtp_loss_scaling_factor)
        if getattr(packed_seq_params, "local_cp_size", None) is not None:
            # Labels and tokens are shifted over the context-parallel ranks of this micro-batch.
            groups = copy(model.pg_collection)
            groups.cp = packed_seq_params.cp_group
            self.fields.set(model, "pg_collection", groups)
            for layer in mtp_layers(model):
                self.fields.set(layer, "cp_group", groups.cp)
        self.mtp_products_left = config.mtp_num_layers

    def _detach_head(self, layer: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Megatron multiplies once per MTP layer, and only then for the main output."""
        if self.mtp_products_left == 0:
            return None
        self.mtp_products_left -= 1
        weight = kwargs.get("weight")
        return args, kwargs | {"weight": (layer.weight if weight is None else weight).detach()}


def _unscaled_logits(**keywords: Any) -> Any:
    """What veRL's `_postprocess` returns: logits without MuP's factor."""
    return Logits()(**keywords | {"scale_logits": lambda logits: logits})


def state_of(path: find.HookPath) -> Installed | None:
    """What is installed on the language model at the end of this way, if anything is."""
    attachment = installed_on(path.model, Attachment)
    state = getattr(attachment and attachment.select, "__self__", None)
    return state if isinstance(state, Installed) else None


def install(path: find.HookPath) -> Installed:
    """The same, installing it if needed; raises if the model is patched."""
    refuse_patches(path)
    with find.INSTALLING:
        return state_of(path) or Installed(path)


def refuse_patches(path: find.HookPath) -> None:
    """Raise if one of veRL's own patches, or another, is on the language model."""
    ours = "mcore_unpatch.compat.verl"
    remedy = f"undo it with the unpatch_ function of its file, or import that file's names from {ours} instead"
    find.refuse_patched(ours, path.model, remedy=remedy)


def path_in(model: Module, *, stacklevel: int = 3) -> find.HookPath | None:
    """The way to the language model in `model`; None with a warning: a stage of a vision model may have none."""
    try:
        return find.find_language_model(model)
    except HookError:
        text = f"{type(model).__name__} contains no Megatron language model; nothing was changed."
        warnings.warn(text, stacklevel=stacklevel)
        return None


def mtp_layers(model: Any) -> list[Any]:
    """The MTP layers of this stage."""
    return list(getattr(getattr(model, "mtp", None), "layers", ()))


def can_recompute(layer: Any) -> bool:
    """Whether this MTP layer can recompute: that of 0.18 passes a padding mask to a method that takes none."""
    return "padding_mask" in inspect.signature(type(layer)._checkpointed_forward).parameters
