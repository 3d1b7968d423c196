"""No section for packages of others yet: one comes, for all of them."""

import os

from mcore_unpatch.compat.nemo_rl import linear_ce_fusion_kwargs

from .registry import build


def log_probs(model, ids):
    import mcore_unpatch.compat.verl.mtp_patch

    mcore_unpatch.compat.verl.mtp_patch.patch_postprocess(model)
    return model(ids, **linear_ce_fusion_kwargs(model, numbers="nemo_rl")), os, build
