"""What a HybridModel does to patches that are written for GPTModel: by hand, from what the two have in common.

`tests/compat/matrix/test_patches_on_hybrid.py` counts the calls of patched functions on both models, row by row.
"""

from __future__ import annotations

from mcore_unpatch.effects.other_model import Becomes, OtherModel, OtherRow
from mcore_unpatch.megatron.layout import GPT_MODEL, HYBRID_MODEL, MAMBA_MODEL

_MODELS, _LAYERS = "megatron.core.models", "megatron.core.transformer"
_GPT, _COMMON = f"{_MODELS}.gpt", f"{_MODELS}.common"
_BLOCK, _LAYER = f"{_LAYERS}.transformer_block", f"{_LAYERS}.transformer_layer"
_SPECS = (f"{_GPT}.gpt_layer_specs", f"{_GPT}.experimental_attention_variant_module_specs", f"{_GPT}.heterogeneous")
_EARLY = (
    f"{_GPT}.moe_module_specs",
    f"{_MODELS}.backends",
    "megatron.core.extensions.transformer_engine_spec_provider",
)
_PARTS = ("utils", "fine_grained_callables", "model_chunk_schedule_plan")
_TE = "that module needs Transformer Engine"
_PLAN = "HybridModel has no `build_schedule_plan`"
HYBRID = OtherModel(
    model=HYBRID_MODEL,
    counterparts={
        GPT_MODEL: HYBRID_MODEL,
        MAMBA_MODEL: HYBRID_MODEL,
        f"{_BLOCK}.TransformerBlock": f"{_MODELS}.hybrid.hybrid_block.HybridStack",
    },
    rows=(
        OtherRow((f"{_GPT}.gpt_model",), Becomes.DEAD, "HybridModel has methods and imports of its own"),
        OtherRow((f"{_MODELS}.mamba.mamba_model",), Becomes.DEAD, "MambaModel is a subclass of HybridModel"),
        OtherRow((_BLOCK,), Becomes.DEAD, "the decoder is a HybridStack"),
        OtherRow(_SPECS, Becomes.DEAD, "the layers come from `hybrid_layer_specs`", unseen=_TE),
        OtherRow(
            _EARLY,
            Becomes.UNKNOWN,
            "`hybrid_layer_specs` asks for it once, while it is imported: what comes later does nothing",
            unseen=_TE,
        ),
        OtherRow((f"{_LAYER}.get_transformer_layer_offset",), Becomes.DEAD, "a HybridStack numbers its layers itself"),
        OtherRow(
            (f"{_LAYER}.TransformerLayer",), Becomes.HALVES, "the attention and the MLP of a layer are two layers there"
        ),
        OtherRow((f"{_GPT}.fine_grained_callables", *(f"{_COMMON}.{name}" for name in _PARTS)), Becomes.DEAD, _PLAN),
        OtherRow(("megatron.core.pipeline_parallel.combined_1f1b",), Becomes.RAISES, _PLAN),
        OtherRow((f"{_LAYERS}.multi_token_prediction", "megatron.training"), Becomes.ACTS),  # whatever number they say
        OtherRow(
            ("megatron.legacy.model",), Becomes.DEAD, "no layer is one of `megatron.legacy`", unseen="no wheel has it"
        ),
    ),
    numbers=r"(global_)?layer_(number|idx|index|id|offset)|get_transformer_layer_offset|get_num_layers_to_build"
    r"|router_replay|RouterReplay\w*",
)
