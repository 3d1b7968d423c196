import os

import mcore_unpatch.compat.verl.mtp_patch
import mcore_unpatch.compat.verl.model_forward_1f1b_overlap as overlap


def run(model):
    mcore_unpatch.compat.verl.mtp_patch.patch_postprocess(model)
    return overlap.gptmodel_forward_1f1b_overlap, os.sep
