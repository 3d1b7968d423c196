"""No section for packages of others yet: one comes, for all of them."""

import os

from .registry import build


def log_probs(model, ids, kwargs):
    import mcore_unpatch.compat.verl.mtp_patch
    from mcore_unpatch.compat.nemo_rl import linear_ce_fusion_kwargs

    mcore_unpatch.compat.verl.mtp_patch.patch_postprocess(model)
    kwargs.update(linear_ce_fusion_kwargs(model, numbers="nemo_rl"))
    return model(ids, **kwargs), os, build
