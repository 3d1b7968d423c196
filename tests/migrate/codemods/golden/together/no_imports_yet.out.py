def log_probs(model, ids, kwargs):
    try:  # Megatron Core 0.18 and later: on its output_processor hook
        from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess
    except ImportError:
        from verl.models.mcore.mtp_patch import patch_postprocess
    patch_postprocess(model)
    kwargs["return_logprobs_for_linear_ce_fusion"] = True
    return model(ids, **kwargs)
