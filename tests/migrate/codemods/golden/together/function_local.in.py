import torch


def setup(model, config):
    """Which patches are on depends on the model."""
    import os

    import megatron.core
    from nemo_rl.distributed.model_utils import patch_gpt_model_forward_for_linear_ce_fusion as patch_linear_ce
    from verl.models.mcore.model_forward_fused import patch_fused_forward as fuse
    from verl.models.mcore.mtp_patch import patch_postprocess  # MTP

    if config.mtp:
        from verl.models.mcore.mtp_patch import unpatch_postprocess

        unpatch_postprocess(model)
        from nemo_rl.distributed.model_utils import patch_gpt_model_forward_for_linear_ce_fusion

        patch_gpt_model_forward_for_linear_ce_fusion(chunk_size=1)
    fuse(model)
    patch_linear_ce(chunk_size=256)
    patch_postprocess(model)
    return megatron.core, os, torch
