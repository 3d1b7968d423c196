"""What HybridModel has in common with GPTModel, by hand: the rows that say what becomes of a patch on it.

Each row is held to Megatron by `tests/compat/matrix/test_patches_on_hybrid.py`, which counts calls on both models.
"""

from __future__ import annotations

from mcore_unpatch.effects.other_model import Becomes, OtherModel, Row
from mcore_unpatch.megatron.layout import GPT_MODEL, HYBRID_MODEL, MAMBA_MODEL

_M, _T = r"megatron\.core\.models\.", r"megatron\.core\.transformer\."
_BLOCK = "megatron.core.transformer.transformer_block.TransformerBlock"
_STACK = "megatron.core.models.hybrid.hybrid_block.HybridStack"
_REPLAY = r"(?i)rout(er|ing)_?replay"

HYBRID = OtherModel(
    model=HYBRID_MODEL,
    counterparts={GPT_MODEL: HYBRID_MODEL, MAMBA_MODEL: HYBRID_MODEL, _BLOCK: _STACK},
    rows=(
        Row("model", rf"{_M}gpt\.gpt_model(\..*)?", Becomes.DEAD, "HybridModel has methods and imports of its own"),
        Row("subclass", rf"{_M}mamba\.mamba_model(\..*)?", Becomes.DEAD, "MambaModel is a subclass of HybridModel"),
        Row("block", rf"{_T}transformer_block(\..*)?", Becomes.DEAD, "its decoder is a HybridStack"),
        Row(
            "builders",
            rf"{_M}gpt\.(gpt_layer_specs|experimental_attention_variant_module_specs|heterogeneous)(\..*)?",
            Becomes.DEAD,
            "its layers come from `hybrid_layer_specs`",
        ),
        Row(
            "specs",
            rf"{_M}(gpt\.moe_module_specs|backends)(\..*)?|megatron\.core\.extensions\.transformer_engine_spec_provider\..*",
            Becomes.UNKNOWN,
            "`hybrid_layer_specs` asks for it once, while it is imported: it acts if it is made before that",
            unseen="`hybrid_layer_specs` needs Transformer Engine",
        ),
        Row(
            "submodules",
            r"megatron\.core\..*Submodules\.\w+",
            Becomes.UNKNOWN,
            "whose spec is changed is not known",
            unseen="the same patch acts on one spec and not on another",
        ),
        Row(
            "offset",
            rf"{_T}transformer_layer\.get_transformer_layer_offset",
            Becomes.DEAD,
            "a HybridStack numbers its layers itself",
        ),
        Row(
            "layer",
            rf"{_T}transformer_layer\.TransformerLayer(\..*)?",
            Becomes.HALVES,
            "each layer is two there, one with the attention and one with the MLP",
        ),
        Row(
            "plan",
            rf"{_M}(common\.(fine_grained_callables|model_chunk_schedule_plan|utils)|gpt\.fine_grained_callables)(\..*)?",
            Becomes.DEAD,
            "HybridModel has no `build_schedule_plan`",
        ),
        Row(
            "overlap",
            r"megatron\.core\.pipeline_parallel\.combined_1f1b(\..*)?",
            Becomes.RAISES,
            "AttributeError: HybridModel has no `build_schedule_plan`",
        ),
        Row(
            "replay",
            rf"{_T}moe\.(router\.TopKRouter\.(__init__|routing|_hash_routing)|router\.RouterReplay|router_replay\..*)",
            Becomes.RENUMBERED,
            "routers are every second layer there",
            says=_REPLAY,
        ),
    ),
    numbers=r"(global_)?layer_(number|idx|index|id|offset)|get_transformer_layer_offset|get_num_layers_to_build",
    unnumbered=rf"{_T}multi_token_prediction\..*",
)
