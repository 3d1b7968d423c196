"""The ways in: for callers that keep NeMo RL's flag, and for callers that pass the hook's arguments themselves."""

from typing import Any

from megatron.core.models.common.language_module.language_module import LanguageModule
from torch import Tensor
from torch.nn import Module
from torch.nn.modules.module import register_module_module_registration_hook
from torch.utils.hooks import RemovableHandle

from mcore_unpatch.compat.hook.context import HookContext
from mcore_unpatch.compat.hook.find import HOOK_KEYWORDS, find_language_model, require_open_wrappers
from mcore_unpatch.compat.hook.watch import Watched
from mcore_unpatch.compat.nemo_rl.calls import Fusion, serve, serve_if_possible, watch
from mcore_unpatch.compat.nemo_rl.processor import NextTokenLogProbs, Numbers
from mcore_unpatch.compat.packing.gather import Gradient

_registration: list[RemovableHandle] = []


def patch_gpt_model_forward_for_linear_ce_fusion(*, chunk_size: int) -> None:
    """From now on, models that are built or wrapped understand `return_logprobs_for_linear_ce_fusion=True`.

    The name is NeMo RL's, and so are the numbers that the flag gives; no class is patched. PyTorch's module
    registration hook shows each new language model, and a forward pre-hook on it turns the flag into the arguments of
    the output hook. A second call changes the chunk size.
    A model that was complete and wrapped before is reached with `linear_ce_fusion_kwargs`.
    """
    if chunk_size < 1:
        raise ValueError(f"chunk_size: expected at least 1, got {chunk_size}")
    Fusion.chunk_size = chunk_size
    if not _registration:
        _registration.append(register_module_module_registration_hook(_serve_new_models))


def unpatch_gpt_model_forward_for_linear_ce_fusion() -> None:
    """Models built from now on do not understand the flag any more; those built before still do."""
    Fusion.chunk_size = None
    while _registration:
        _registration.pop().remove()


def linear_ce_fusion_kwargs(
    model: Module,
    *,
    chunk_size: int | None = None,
    temperature: float | Tensor = 1.0,
    entropy: bool = False,
    cp_gradient: Gradient = "summed",
    numbers: Numbers = "megatron",
) -> dict[str, Any]:
    """What to pass to `model(..., labels=input_ids, **these)` for log-probs `[b, s - 1]` instead of the flag.

    `model` is what will be called, wrappers and all. `chunk_size` defaults to that of
    `patch_gpt_model_forward_for_linear_ce_fusion`. The other arguments are those of `NextTokenLogProbs`.
    `numbers="nemo_rl"` is for calls that used to run NeMo RL's patch: there is no MTP loss either, as before.
    """
    path = find_language_model(model)
    require_open_wrappers(path)
    serve(path.model)
    if path.wrappers:
        watch(model)
    processor = NextTokenLogProbs(
        chunk_size=chunk_size or Fusion.chunk_size,
        temperature=temperature,
        entropy=entropy,
        cp_gradient=cp_gradient,
        numbers=numbers,
    )
    return dict(zip(HOOK_KEYWORDS, (Watched(processor), HookContext()), strict=True))


def _serve_new_models(module: Module, name: str, submodule: Module | None) -> None:
    if isinstance(submodule, LanguageModule):  # complete, and being wrapped
        serve_if_possible(submodule)
    elif isinstance(module, LanguageModule) and not find_language_model(module).is_hybrid:
        serve_if_possible(module)  # under construction; a HybridModel has to be complete for it
