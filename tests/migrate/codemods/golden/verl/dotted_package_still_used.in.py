import verl.models.mcore.mtp_patch


def run(model):
    verl.models.mcore.mtp_patch.patch_postprocess(model)
    return verl.__version__
