"""What is kept by hand about Megatron Core: the output hook, and classes that specs do not take a subclass of."""

from __future__ import annotations

from mcore_unpatch.megatron.versions import Version

_CORE = "megatron.core"

GPT_MODEL = f"{_CORE}.models.gpt.gpt_model.GPTModel"
HYBRID_MODEL = f"{_CORE}.models.hybrid.hybrid_model.HybridModel"
MAMBA_MODEL = f"{_CORE}.models.mamba.mamba_model.MambaModel"
LANGUAGE_MODULE = f"{_CORE}.models.common.language_module.language_module.LanguageModule"
CONFIG = f"{_CORE}.transformer.transformer_config.TransformerConfig"

HOOK_SINCE: Version = (0, 18)
HOOK_ARGUMENTS = ("output_processor", "output_processor_context")
# The methods that are handed the hook. A replacement that does not call it drops it.
HOOK_CARRIERS = {(GPT_MODEL, "forward"), (GPT_MODEL, "_postprocess"), (GPT_MODEL, "build_schedule_plan")}


# Classes that Megatron compares with `module` of a ModuleSpec: a subclass in a spec is another one there.
_NOW: Version = (1,)
_OF_LAYER = (
    " With MTP give `get_gpt_mtp_block_spec` the block's `TransformerBlockSubmodules`: it raises for a subclass."
)
_OF_MLP = (
    " Since 0.18 `TransformerLayer` knows a `ModuleSpec` of Megatron's own MLP alone, and calls others with arguments "
    "that an MLP does not take: give the spec `functools.partial(YourClass.as_mlp_submodule, submodules=...)` as `mlp`."
)
_OF_MOE = (
    " From 0.13 to 0.17 `TransformerLayer` hands its process groups, and in 0.17 `is_mtp_layer`, to Megatron's own "
    "`MoELayer` alone, and to no subclass in a `ModuleSpec`."
)
_OF_MLA = (
    " Since 0.14 MLA takes Megatron's own classes alone as `linear_q_down_proj` and `linear_kv_down_proj`, since 0.17 "
    "also as `linear_qkv_down_proj`, and raises for a subclass: keep the patch where your specs name the class there."
)
_LINEAR = ("TELinear", "TEColumnParallelLinear", "ColumnParallelLinear", "Linear")
# From which minor release to which, and what.
COMPARED_IN_SPECS: dict[str, tuple[Version, Version, str]] = {
    "TransformerLayer": ((0, 12), _NOW, _OF_LAYER),
    "MLP": ((0, 18), _NOW, _OF_MLP),
    "TEFusedMLP": ((0, 18), _NOW, _OF_MLP),
    "MoELayer": ((0, 13), (0, 17), _OF_MOE),
    "TELayerNormColumnParallelLinear": ((0, 17), _NOW, _OF_MLA),
    **dict.fromkeys(_LINEAR, ((0, 14), _NOW, _OF_MLA)),
}
