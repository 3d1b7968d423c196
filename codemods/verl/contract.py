"""The contract with `mcore_unpatch.compat.verl`: its modules, their names, and the rule of each name's patch."""

from __future__ import annotations

from mcore_unpatch.codemods.shims.contract import Contract, Shim

FUSED = Shim(
    "models/mcore/model_forward_fused.py",
    "mcore_unpatch.compat.verl.model_forward_fused",
    {
        "FusedOutputProcessorContext": "MCU701",
        "fused_forward_gptmodel": "MCU701",
        "fused_forward_model_engine": "MCU701",
        "fused_forward_model_gen": "MCU701",
        "fused_forward_no_padding_gen": "MCU701",
        "fused_forward_qwen2_5_vl": "MCU701",
        "fused_output_processor": "MCU701",
        "patch_fused_forward": "MCU701",
        "unpatch_fused_forward": "MCU701",
    },
    "fused kernels with MTP on and for padded batches too, and a faster training step (docs/gpu.md)",
)
MTP = Shim(
    "models/mcore/mtp_patch.py",
    "mcore_unpatch.compat.verl.mtp_patch",
    {
        "patch_mtp_layer_checkpointed_forward": "MCU704",
        "patch_mtp_layer_get_embeddings": "MCU703",
        "patch_postprocess": "MCU702",
        "unpatch_mtp_layer_checkpointed_forward": "MCU704",
        "unpatch_mtp_layer_get_embeddings": "MCU703",
        "unpatch_postprocess": "MCU702",
    },
)
OVERLAP = Shim(
    "models/mcore/model_forward_1f1b_overlap.py",
    "mcore_unpatch.compat.verl.model_forward_1f1b_overlap",
    {"gptmodel_forward_1f1b_overlap": "MCU705"},
)

VERL = Contract(
    package="verl",
    shims=(FUSED, MTP, OVERLAP),
    words=(
        b"fused_forward",
        b"forward_fused",
        b"FusedOutputProcessorContext",
        b"fused_output_processor",
        b"mtp_patch",
        b"patch_mtp_layer",
        b"patch_postprocess",
        b"1f1b_overlap",
    ),
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
