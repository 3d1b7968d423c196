# golden: path=fork/models/mcore/mtp_patch.py unsafe select=MCU
"""MTP for our fork."""

import copy

from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess
from megatron.core.utils import unwrap_model

__all__ = ["SCALE", "chunks", "patch_postprocess", "scaled"]

# ---- ours ----
SCALE = 0.3


def scaled(config):
    """Ours: stays."""
    config = copy.copy(config)
    config.mtp_loss_scaling_factor *= SCALE
    return config


def _inner(model):
    return unwrap_model(model)


def chunks(model):
    return _inner(model).decoder
