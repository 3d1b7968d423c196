from verl.models.mcore.mtp_patch import (
    our_own_helper,  # not upstream
    # keeps the loss
    patch_postprocess,  # and the logits
)


def run(model):
    patch_postprocess(model)
    our_own_helper(model)
