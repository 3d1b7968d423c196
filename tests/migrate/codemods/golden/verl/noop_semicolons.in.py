def run(model):
    from verl.models.mcore.mtp_patch import patch_postprocess; patch_postprocess(model)
