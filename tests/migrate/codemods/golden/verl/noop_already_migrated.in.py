from mcore_unpatch.compat.verl import mtp_patch
from mcore_unpatch.compat.verl.model_forward_fused import patch_fused_forward


def run(model):
    patch_fused_forward(model)
    mtp_patch.patch_postprocess(model)
