"""No section for packages of others yet: one comes, for all of them."""

import os

from .registry import build


def log_probs(model, ids, kwargs):
    import verl.models.mcore.mtp_patch

    verl.models.mcore.mtp_patch.patch_postprocess(model)
    kwargs["return_logprobs_for_linear_ce_fusion"] = True
    return model(ids, **kwargs), os, build
