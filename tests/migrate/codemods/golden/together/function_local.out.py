import torch


def setup(model, config):
    """Which patches are on depends on the model."""
    import os

    import megatron.core

    try:  # Megatron Core 0.18 and later: on its output_processor hook
        from mcore_unpatch.compat.nemo_rl import patch_gpt_model_forward_for_linear_ce_fusion as patch_linear_ce
    except ImportError:
        from nemo_rl.distributed.model_utils import patch_gpt_model_forward_for_linear_ce_fusion as patch_linear_ce

    try:  # Megatron Core 0.18 and later: on its output_processor hook
        from mcore_unpatch.compat.verl.model_forward_fused import patch_fused_forward as fuse
    except ImportError:
        from verl.models.mcore.model_forward_fused import patch_fused_forward as fuse

    try:  # Megatron Core 0.18 and later: on its output_processor hook
        from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess
    except ImportError:
        from verl.models.mcore.mtp_patch import patch_postprocess  # MTP

    if config.mtp:
        try:  # Megatron Core 0.18 and later: on its output_processor hook
            from mcore_unpatch.compat.verl.mtp_patch import unpatch_postprocess
        except ImportError:
            from verl.models.mcore.mtp_patch import unpatch_postprocess

        unpatch_postprocess(model)
        try:  # Megatron Core 0.18 and later: on its output_processor hook
            from mcore_unpatch.compat.nemo_rl import patch_gpt_model_forward_for_linear_ce_fusion
        except ImportError:
            from nemo_rl.distributed.model_utils import patch_gpt_model_forward_for_linear_ce_fusion

        patch_gpt_model_forward_for_linear_ce_fusion(chunk_size=1)
    fuse(model)
    patch_linear_ce(chunk_size=256)
    patch_postprocess(model)
    return megatron.core, os, torch
