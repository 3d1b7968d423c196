from verl.models.mcore.mtp_patch import (
    our_own_helper,  # not upstream
)

try:  # Megatron Core 0.18 and later: on its output_processor hook
    from mcore_unpatch.compat.verl.mtp_patch import (
        # keeps the loss
        patch_postprocess,  # and the logits
    )
except ImportError:
    from verl.models.mcore.mtp_patch import (
        # keeps the loss
        patch_postprocess,  # and the logits
    )


def run(model):
    patch_postprocess(model)
    our_own_helper(model)
