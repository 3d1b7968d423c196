from mcore_unpatch.compat.verl.mtp_patch import (
    # keeps the loss
    patch_postprocess,  # and the logits
)
from verl.models.mcore.mtp_patch import (
    our_own_helper,  # not upstream
)


def run(model):
    patch_postprocess(model)
    our_own_helper(model)
