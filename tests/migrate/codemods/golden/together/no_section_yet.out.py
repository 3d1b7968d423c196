"""Megatron is imported inside the function: so is what comes."""

import os

from .registry import build


def log_probs(model, ids, kwargs):
    from mcore_unpatch.compat.nemo_rl import linear_ce_fusion_kwargs
    from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess

    patch_postprocess(model)
    kwargs.update(linear_ce_fusion_kwargs(model, numbers="nemo_rl"))
    return model(ids, **kwargs), os, build
