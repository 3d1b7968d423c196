"""What is known of Megatron by heart: its packages, and what its specs put where, which no constructor says."""

from __future__ import annotations

PACKAGES = tuple(
    f"megatron.{name}" for name in ("core", "training", "elastification", "inference", "legacy", "post_training", "rl")
)
DISTRIBUTION = "megatron-core"
VERSIONED = ("megatron.core", "megatron.core.package_info")
# In the wheels without a source; and packages that a wheel may lack where a checkout has them.
COMPILED = "megatron.core.datasets.helpers_cpp"
TRAINING, TRAINING_SINCE = "megatron.training", (0, 17)

_T = "megatron.core.transformer"
_TP = "megatron.core.tensor_parallel.layers"
_EMBEDDINGS = "megatron.core.models.common.embeddings"
GPT_MODEL = "megatron.core.models.gpt.gpt_model.GPTModel"
MODULE = f"{_T}.module.MegatronModule"
PARTS = {
    "decoder": f"{_T}.transformer_block.TransformerBlock",
    "encoder": f"{_T}.transformer_block.TransformerBlock",
    "layers": f"{_T}.transformer_layer.TransformerLayer",
    "transformer_layer": f"{_T}.transformer_layer.TransformerLayer",
    "mtp_model_layer": f"{_T}.transformer_layer.TransformerLayer",
    "mtp": f"{_T}.multi_token_prediction.MultiTokenPredictionBlock",
    "self_attention": f"{_T}.attention.SelfAttention",
    "cross_attention": f"{_T}.attention.CrossAttention",
    "core_attention": f"{_T}.dot_product_attention.DotProductAttention",
    "mlp": f"{_T}.mlp.MLP",
    "router": f"{_T}.moe.router.TopKRouter",
    "experts": f"{_T}.moe.experts.TEGroupedMLP",
    "token_dispatcher": f"{_T}.moe.token_dispatcher.MoEAlltoAllTokenDispatcher",
    "shared_experts": f"{_T}.moe.shared_experts.SharedExpertMLP",
    "linear_fc1": f"{_TP}.ColumnParallelLinear",
    "linear_fc2": f"{_TP}.RowParallelLinear",
    "linear_qkv": f"{_TP}.ColumnParallelLinear",
    "linear_proj": f"{_TP}.RowParallelLinear",
    "output_layer": f"{_TP}.ColumnParallelLinear",
    "word_embeddings": f"{_TP}.VocabParallelEmbedding",
    "embedding": f"{_EMBEDDINGS}.language_model_embedding.LanguageModelEmbedding",
    "rotary_pos_emb": f"{_EMBEDDINGS}.rotary_pos_embedding.RotaryEmbedding",
    "final_layernorm": f"{_T}.torch_norm.WrappedTorchNorm",
    "input_layernorm": f"{_T}.torch_norm.WrappedTorchNorm",
    "pre_mlp_layernorm": f"{_T}.torch_norm.WrappedTorchNorm",
    "language_model": GPT_MODEL,
    "optimizer": "megatron.core.optimizer.optimizer.MegatronOptimizer",
    "chained_optimizers": "megatron.core.optimizer.optimizer.Float16OptimizerWithFloat16Params",
    "post_process": "megatron.core.models.common.utils.PostProcessNode",
    "pre_process": "megatron.core.models.common.utils.PreProcessNode",
}
LISTS = {
    (f"{_T}.transformer_block.TransformerBlock", "layers"): f"{_T}.transformer_layer.TransformerLayer",
    (f"{_T}.multi_token_prediction.MultiTokenPredictionBlock", "layers"): (
        f"{_T}.multi_token_prediction.MultiTokenPredictionLayer"
    ),
}
HOLDS = {
    ("megatron.core.distributed.distributed_data_parallel.DistributedDataParallel", "module"): GPT_MODEL,
    (f"{_T}.module.Float16Module", "module"): GPT_MODEL,
    ("megatron.core.models.hybrid.hybrid_model.HybridModel", "mtp"): PARTS["mtp"],
}
RESULTS = {"megatron.core.utils.get_model_config": f"{_T}.transformer_config.TransformerConfig"}
WHOLE = GPT_MODEL
COMPANIONS = ("mbridge", "mcore")
WORDS = ("egatron", "mcore", "output_layer")

# Methods that Megatron's classes have from classes of torch.
OUTSIDE = {
    "Module": """
        _apply _call_impl _load_from_state_dict _save_to_state_dict add_module apply bfloat16 buffers children compile
        cpu cuda double eval extra_repr float forward get_buffer get_extra_state get_parameter get_submodule half
        load_state_dict modules named_buffers named_children named_modules named_parameters parameters register_buffer
        register_forward_hook register_forward_pre_hook register_full_backward_hook register_module register_parameter
        register_state_dict_pre_hook requires_grad_ set_extra_state set_submodule share_memory state_dict to to_empty
        train type xpu zero_grad __call__
    """,
    "Function": "forward backward apply setup_context jvp vmap",
    "Optimizer": "step zero_grad state_dict load_state_dict add_param_group",
}

# What a replacement says, by which rows of `answers.toml` know it: where it is looked for, and what.
TELLS = {
    "log-probs": (
        "words",
        r"(?i)log_?probs?\b|logp\b|entropy|linear_?ce|fused_?ce|lm_loss\b|temperature|fused_linear|topk_logits",
    ),
    "values": ("words", r"(?i)value|critic|reward|score|classif|num_labels|LastLayer|v_head|token_class"),
    "mtp": ("words", "(?i)mtp"),
    "head": ("words", "^output_layer$"),
    "decoder": ("words", "^decoder$"),
    "detaches": ("words", "detach"),
    "replay": ("words", "(?i)replay"),
    "fp32": ("words", "^(float|float32|fp32)$"),
    "clips": ("words", "clip_grad"),
    "takes-hook": ("words", "^output_processor$"),
    "runs-hook": ("calls", "^output_processor$"),
    "batch-invariant": ("words", "batch_invariant"),
    "schedule": ("words", "backward"),
    "says-loss": ("words", "loss_func|compute_language_model_loss|cross_entropy|MTPLossAutoScaler"),
    "says-labels": ("says", "^labels$"),
    "says-provider": ("words", "^extra_args_provider$"),
    "meta": ("strings", "^meta$"),
    "masked-replay": ("module", r"(?i)replay\w*mask|mask\w*replay"),
    "mtp-norms": ("module", r"(?s)(?=.*mtp)(?=.*get_grad_norm)"),
    "plan": ("installer", r"\.build_schedule_plan"),
    "remote-code": ("words", "^trust_remote_code$"),
    "remote-code-given": ("value", "trust_remote_code"),
    "adapter": ("called", "(?i)lora|quant|fp8|wrap|adapter"),
    "passing": ("called", "(?i)identity|passthrough|hidden"),
    "compiles": ("called", r"^torch\.compile$"),
    "mtp-count": ("every-write", r"\.mtp_num_layers$"),
    "edits-config": ("every-write", r"(^|\.)config\."),
    "clears-mtp": ("a-write", r"\.mtp_process$"),
    "mtp-off": ("turns-off", "mtp_in_postprocess"),
    "swaps-head": ("a-write", "output_layer"),
    "hands-back": ("returned", "^_postprocess$"),
}
