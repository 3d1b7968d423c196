import os

import verl.models.mcore.mtp_patch
import verl.models.mcore.model_forward_1f1b_overlap as overlap


def run(model):
    verl.models.mcore.mtp_patch.patch_postprocess(model)
    return overlap.gptmodel_forward_1f1b_overlap, os.sep
