try:  # Megatron Core 0.18 and later: on its output_processor hook
    from mcore_unpatch.compat.verl.model_forward_fused import fused_forward_model_gen, patch_fused_forward
except ImportError:
    from verl.models.mcore.model_forward_fused import fused_forward_model_gen, patch_fused_forward

try:  # Megatron Core 0.18 and later: on its output_processor hook
    from mcore_unpatch.compat.verl.mtp_patch import (
        patch_mtp_layer_get_embeddings,  # detach the encoder
        patch_postprocess,
    )
except ImportError:
    from verl.models.mcore.mtp_patch import (
        patch_mtp_layer_get_embeddings,  # detach the encoder
        patch_postprocess,
    )

NAMES = (fused_forward_model_gen, patch_fused_forward, patch_mtp_layer_get_embeddings, patch_postprocess)
