import mcore_unpatch.compat.verl.mtp_patch
import verl.models.mcore.mtp_patch


def run(model):
    mcore_unpatch.compat.verl.mtp_patch.patch_postprocess(model)
    return verl.__version__
