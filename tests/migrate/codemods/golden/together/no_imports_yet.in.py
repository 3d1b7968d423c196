def log_probs(model, ids):
    from verl.models.mcore.mtp_patch import patch_postprocess
    patch_postprocess(model)
    return model(ids, return_logprobs_for_linear_ce_fusion=True)
