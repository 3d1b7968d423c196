"""What is kept by hand about Megatron Core: how a model is put together, and what signatures do not show.

Submodules built from a `ModuleSpec` carry no class in the source; these are the ones downstream code reaches for.
"""

from __future__ import annotations

import re

from mcore_unpatch.megatron.versions import Version

_CORE = "megatron.core"

GPT_MODEL = f"{_CORE}.models.gpt.gpt_model.GPTModel"
HYBRID_MODEL = f"{_CORE}.models.hybrid.hybrid_model.HybridModel"
MAMBA_MODEL = f"{_CORE}.models.mamba.mamba_model.MambaModel"
LANGUAGE_MODULE = f"{_CORE}.models.common.language_module.language_module.LanguageModule"
MTP_BLOCK = f"{_CORE}.transformer.multi_token_prediction.MultiTokenPredictionBlock"
MTP_LAYER = f"{_CORE}.transformer.multi_token_prediction.MultiTokenPredictionLayer"
BLOCK = f"{_CORE}.transformer.transformer_block.TransformerBlock"
LAYER = f"{_CORE}.transformer.transformer_layer.TransformerLayer"
ATTENTION = f"{_CORE}.transformer.attention.Attention"
SELF_ATTENTION = f"{_CORE}.transformer.attention.SelfAttention"
MOE_LAYER = f"{_CORE}.transformer.moe.moe_layer.MoELayer"
ROUTER = f"{_CORE}.transformer.moe.router.TopKRouter"
CONFIG = f"{_CORE}.transformer.transformer_config.TransformerConfig"
MLP = f"{_CORE}.transformer.mlp.MLP"
COLUMN_LINEAR = f"{_CORE}.tensor_parallel.layers.ColumnParallelLinear"
DATA_PARALLEL = f"{_CORE}.distributed.distributed_data_parallel.DistributedDataParallel"
OPTIMIZER = f"{_CORE}.optimizer.optimizer.MegatronOptimizer"
FLOAT16_MODULE = f"{_CORE}.transformer.module.Float16Module"
SCHEDULE_PLAN = f"{_CORE}.models.common.model_chunk_schedule_plan.TransformerModelChunkSchedulePlan"
PREPROCESS_NODE = f"{_CORE}.models.common.utils.PreProcessNode"
POSTPROCESS_NODE = f"{_CORE}.models.common.utils.PostProcessNode"

COMPILED = f"{_CORE}.datasets.helpers_cpp"  # in the wheels without a source; built by hand where Megatron is cloned

ATTRIBUTE_CLASSES = {
    (GPT_MODEL, "decoder"): BLOCK,
    (GPT_MODEL, "mtp"): MTP_BLOCK,
    (HYBRID_MODEL, "mtp"): MTP_BLOCK,
    (LAYER, "self_attention"): SELF_ATTENTION,
    (LAYER, "cross_attention"): ATTENTION,
    (LAYER, "mlp"): MLP,
    (MOE_LAYER, "router"): ROUTER,
    (MTP_LAYER, "mtp_model_layer"): LAYER,
    (MTP_LAYER, "transformer_layer"): LAYER,
    (DATA_PARALLEL, "module"): GPT_MODEL,
    (FLOAT16_MODULE, "module"): GPT_MODEL,
    (SCHEDULE_PLAN, "pre_process"): PREPROCESS_NODE,
    (SCHEDULE_PLAN, "post_process"): POSTPROCESS_NODE,
}

# What functions give whose annotation does not say it.
RESULTS = {f"{_CORE}.utils.get_model_config": CONFIG}
# Attributes of an unknown object that only Megatron's own classes have: (attribute, the class it belongs to).
SEAM_METHODS = {"_postprocess": GPT_MODEL, "_get_embeddings": MTP_LAYER, "_checkpointed_forward": MTP_LAYER}

# Methods of classes outside Megatron Core that Megatron's classes inherit from.
_MODULE = """
_apply _call_impl _load_from_state_dict _save_to_state_dict add_module apply bfloat16 buffers children compile
cpu cuda double eval extra_repr float forward get_buffer get_extra_state get_parameter get_submodule half
load_state_dict modules named_buffers named_children named_modules named_parameters parameters register_buffer
register_forward_hook register_forward_pre_hook register_full_backward_hook register_module register_parameter
register_state_dict_pre_hook requires_grad_ set_extra_state set_submodule share_memory state_dict to to_empty
train type xpu zero_grad
"""
_OUTSIDE = {
    "Module": _MODULE,
    "Function": "forward backward apply setup_context jvp vmap",
    "Optimizer": "step zero_grad state_dict load_state_dict add_param_group",
}
EXTERNAL_METHODS = {name: frozenset(words.split()) for name, words in _OUTSIDE.items()}


HOOK_SINCE: Version = (0, 18)
HOOK_ARGUMENTS = ("output_processor", "output_processor_context")
# The methods that are handed the hook. A replacement that does not call it drops it.
HOOK_CARRIERS = {(GPT_MODEL, "forward"), (GPT_MODEL, "_postprocess"), (GPT_MODEL, "build_schedule_plan")}

# Assignments that have no effect from a release on.
INERT_SINCE: dict[tuple[str, str], tuple[Version, str]] = {
    (POSTPROCESS_NODE, "forward_impl"): ((0, 14), "the node keeps the method it was built with")
}

# Parameters and config fields that are about when and where the same numbers are computed, kept or sent, by a part of
# their names: communication that overlaps, multiprocessors for a kernel, CUDA graphs and their memory, what is
# recomputed or kept on the CPU, threads that write a checkpoint, timers. A fused kernel is none of these:
# it rounds in its own way.
SPEED_ONLY = re.compile(
    r"overlap|num_sms|cuda_graph|mempool|offloading|recompute|saved_activations|thread_count|barrier_with|timers|log_level"
)

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
# Options of Megatron's programs that are gone without a trace, by the first release that lacks them.
GONE_OPTIONS: dict[Version, tuple[str, ...]] = {
    (0, 18): ("use_legacy_models", "cuda_graph_scope", "scatter_gather_tensors_in_pipeline", "tiktoken_special_tokens"),
    (0, 19): ("rl_generation_batch_size", "rl_num_parallel_generations", "rl_parallel_generation_tasks"),
}
