def build(model):
    try:  # Megatron Core 0.18 and later: on its output_processor hook
        from mcore_unpatch.compat.verl.mtp_patch import (  # applied in this order
            patch_postprocess,  # first: the loss
            # recompute is broken without it
            patch_mtp_layer_checkpointed_forward,
        )
    except ImportError:
        from verl.models.mcore.mtp_patch import (  # applied in this order
            patch_postprocess,  # first: the loss
            # recompute is broken without it
            patch_mtp_layer_checkpointed_forward,
        )

    patch_postprocess(model)
    patch_mtp_layer_checkpointed_forward(model)
