"""The entry points: one for callers that keep NeMo RL's flag, one for callers that pass the hook's arguments."""

from typing import Any

from megatron.core.models.common.language_module.language_module import LanguageModule
from torch import Tensor
from torch.nn import Module
from torch.nn.modules.module import register_module_module_registration_hook
from torch.utils.hooks import RemovableHandle

from mcore_unpatch.compat.hook.attach import Watched
from mcore_unpatch.compat.hook.context import HookContext
from mcore_unpatch.compat.hook.find import HOOK_KEYWORDS, find_language_model, require_open_wrappers
from mcore_unpatch.compat.nemo_rl.calls import Fusion, serve, serve_if_possible, watch
from mcore_unpatch.compat.nemo_rl.processor import NextTokenLogProbs, Numbers
from mcore_unpatch.compat.packing.gather import Gradient

_registration: list[RemovableHandle] = []


def patch_gpt_model_forward_for_linear_ce_fusion(*, chunk_size: int) -> None:
    """Make models built or wrapped from now on accept `return_logprobs_for_linear_ce_fusion=True`.

    The name and the numbers are NeMo RL's; no class is patched. PyTorch's module registration hook sees each new
    language model, and a forward pre-hook on it turns the flag into the arguments of the output hook. A second call
    changes the chunk size.
    For a model that was built and wrapped before this call, use `linear_ce_fusion_kwargs`.
    """
    if chunk_size < 1:
        raise ValueError(f"chunk_size: expected at least 1, got {chunk_size}")
    Fusion.chunk_size = chunk_size
    if not _registration:
        _registration.append(register_module_module_registration_hook(_serve_new_models))


def unpatch_gpt_model_forward_for_linear_ce_fusion() -> None:
    """Make models built from now on reject the flag again; those built before still accept it."""
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
    """The keywords for `model(..., labels=input_ids, **keywords)` that return log-probs `[b, s - 1]`, as the flag does.

    `model` is the module that will be called, with all its wrappers. `chunk_size` defaults to that of
    `patch_gpt_model_forward_for_linear_ce_fusion`. The other arguments are those of `NextTokenLogProbs`.
    `numbers="nemo_rl"` reproduces the results of NeMo RL's patch, which also has no MTP loss.
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
