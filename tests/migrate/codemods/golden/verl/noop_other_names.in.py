"""Names of the same files that no shim has, and files of the same names elsewhere."""

from verl.models.mcore.model_forward import model_forward_gen
from verl.models.mcore.mtp_patch import our_own_helper
from other_project.mtp_patch import patch_postprocess


def run(model):
    patch_postprocess(model)
    return model_forward_gen(False), our_own_helper(model)
