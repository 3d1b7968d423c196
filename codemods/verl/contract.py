"""The contract with `mcore_unpatch.compat.verl`: its modules, their names, and the rule of each name's patch."""

from __future__ import annotations

from mcore_unpatch.codemods.shims.contract import Contract, Shim

FUSED = Shim(
    "models/mcore/model_forward_fused.py",
    "mcore_unpatch.compat.verl.model_forward_fused",
    {
        "FusedOutputProcessorContext": "MCU101",
        "fused_forward_gptmodel": "MCU101",
        "fused_forward_model_engine": "MCU101",
        "fused_forward_model_gen": "MCU101",
        "fused_forward_no_padding_gen": "MCU101",
        "fused_forward_qwen2_5_vl": "MCU101",
        "fused_output_processor": "MCU101",
        "patch_fused_forward": "MCU101",
        "unpatch_fused_forward": "MCU101",
    },
    "fused kernels with MTP on and for padded batches too, and a faster training step (docs/gpu.md)",
)
MTP = Shim(
    "models/mcore/mtp_patch.py",
    "mcore_unpatch.compat.verl.mtp_patch",
    {
        "patch_mtp_layer_checkpointed_forward": "MCU203",
        "patch_mtp_layer_get_embeddings": "MCU202",
        "patch_postprocess": "MCU201",
        "unpatch_mtp_layer_checkpointed_forward": "MCU203",
        "unpatch_mtp_layer_get_embeddings": "MCU202",
        "unpatch_postprocess": "MCU201",
    },
)
OVERLAP = Shim(
    "models/mcore/model_forward_1f1b_overlap.py",
    "mcore_unpatch.compat.verl.model_forward_1f1b_overlap",
    {"gptmodel_forward_1f1b_overlap": "MCU301"},
)

VERL = Contract(
    package="verl",
    shims=(FUSED, MTP, OVERLAP),
    helper_file="models/mcore/util.py",
    # The shims pack and unpack for themselves: a fork's change of these is lost as well.
    helpers=(
        "build_vlm_attn_mask_thd",
        "postprocess_packed_seqs",
        "postprocess_packed_seqs_for_dict_output",
        "postprocess_thd_engine",
        "postprocess_thd_no_padding",
        "preprocess_packed_seqs",
        "preprocess_thd_engine",
        "preprocess_thd_no_padding",
    ),
)
