"""What the veRL shims installed on one language model: a single attachment that serves them all."""

import warnings
from typing import Any

from torch.nn import Module

from mcore_unpatch.compat.hook.attach import Handle, attach_selector, call_along, installed_on
from mcore_unpatch.compat.hook.call import Processor, is_inference
from mcore_unpatch.compat.hook.context import complete_context
from mcore_unpatch.compat.hook.errors import HookError, HookSwallowedError
from mcore_unpatch.compat.hook.find import HookPath, enter_as_module, find_language_model, refuse_patched
from mcore_unpatch.compat.hook.one_call import INSTALLING, PerThread
from mcore_unpatch.compat.hook.processors import Logits
from mcore_unpatch.compat.verl.fused_processor import FusedProcessor, Numbers, several_rows
from mcore_unpatch.compat.verl.mtp_call import MtpCalls

Request = tuple[Processor, Any]


class Installed:
    """The veRL shims on one model: state says which are active; all share the same hooks."""

    def __init__(self, model: Module) -> None:
        inner = find_language_model(model).model
        refuse_patched("mcore_unpatch.compat.verl", inner, remedy=_REMEDY)
        self.fused: Numbers | None = None  # whose numbers; None: not on
        self.logits: Numbers | None = None
        self.config: Any = inner.config
        self.calls = 0  # of those that ask for something, in all threads
        self.requests: PerThread[Request] = PerThread()
        self.handle: Handle = attach_selector(model, self._select, same_as=Installed)
        self.mtp = MtpCalls(inner, self)
        self.handle.on_removal(self.mtp.remove)

    @property
    def in_use(self) -> bool:
        """Whether any shim is still active."""
        return self.fused is not None or self.logits is not None or self.calls > 0

    def leaves_out_mtp(self, keywords: dict[str, Any]) -> bool:
        """Whether a call with labels runs no MTP, as in veRL's fused forward of the model."""
        return self.fused == "verl" and not self.requests and keywords.get("output_processor") is None

    def _select(self, keywords: dict[str, Any]) -> Request | None:
        temperature = keywords.pop("temperature", None) if self.fused is not None else None
        request = self.requests.end()
        if is_inference(keywords) or keywords.get("output_processor") is not None:
            return None
        if request is not None:
            return request
        labels = keywords.get("labels")
        if self.fused is not None and labels is not None:
            flat = self.fused == "verl"
            if flat and len(labels) > 1:
                raise several_rows(labels, 'call patch_fused_forward(model, numbers="megatron") for those of every row')
            return FusedProcessor.giving(self.fused, flat=flat), {"temperature": temperature}
        unscaled = self.logits == "verl" and getattr(self.config, "use_mup", False)
        if self.logits is None or (labels is None and not unscaled):
            return None
        return (_unscaled_logits if unscaled else Logits()), None


def _unscaled_logits(**keywords: Any) -> Any:
    """What veRL's `_postprocess` returns: logits without MuP's factor."""
    return Logits()(**keywords | {"scale_logits": lambda logits: logits})


_REMEDY = (
    "undo it with the unpatch_ function of the file it comes from, or import that file's names from "
    "mcore_unpatch.compat.verl instead"
)


def installed(model: Module) -> Installed | None:
    """What is installed on the language model inside `model`, if it has one, and if anything is."""
    try:
        return installed_along(find_language_model(model))
    except HookError:
        return None


def installed_along(path: HookPath) -> Installed | None:
    """What is installed on the language model at the end of this way."""
    calls = installed_on(path.model, MtpCalls)
    return None if calls is None else calls.owner


def call_with_request(path: HookPath, model: Module, processor: Processor, context: Any, keywords: Any) -> Any:
    """`model(**keywords)` with `processor` at the output of its language model, whatever stands around that.

    Where nothing is in the way the hook's keywords go with the call, and nothing is installed for it.
    """
    config: Any = path.model.config
    if path.passes_keywords and not config.mtp_num_layers and not is_inference(keywords):
        refuse_patched("mcore_unpatch.compat.verl", path.model, remedy=_REMEDY)
        return call_along(path, model, processor, complete_context(context, path.model), (), keywords)
    with INSTALLING:
        state = install(model)
        state.calls += 1
    leave = enter_as_module(path.wrappers, path.model)
    state.requests.begin((processor, context))
    try:
        result = model(**keywords)
        if state.requests:
            names = " > ".join(type(wrapper).__name__ for wrapper in path.wrappers) or "the call"
            inner = type(path.model).__name__
            raise HookSwallowedError(
                f"{names} returned without calling {inner}, so the processor never ran; pass {inner} itself."
            )
        return result
    finally:
        state.requests.end()
        leave()
        with INSTALLING:
            state.calls -= 1
            release(model)


def install(model: Module) -> Installed:
    """What is installed on the language model inside `model`, installing it if needed."""
    with INSTALLING:
        return installed(model) or Installed(model)


def release(model: Module) -> None:
    """Remove the hooks if no shim is active any more."""
    with INSTALLING:
        found = installed(model)
        if found is not None and not found.in_use:
            found.handle.remove()


def language_model_in(model: Module, *, stacklevel: int = 3) -> Any:
    """The Megatron language model inside `model`; None with a warning: a stage of a vision model may have none."""
    try:
        return find_language_model(model).model
    except HookError:
        text = f"{type(model).__name__} contains no Megatron language model; nothing was changed."
        warnings.warn(text, stacklevel=stacklevel)
        return None
