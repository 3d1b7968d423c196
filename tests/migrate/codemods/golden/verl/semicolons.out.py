def run(model):
    from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess; patch_postprocess(model)
