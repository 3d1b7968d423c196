import logging

import torch
from omegaconf import OmegaConf

try:  # Megatron Core 0.18 and later: on its output_processor hook
    from mcore_unpatch.compat.verl.mtp_patch import patch_mtp_layer_get_embeddings, patch_postprocess as with_mtp_loss
except ImportError:
    from verl.models.mcore.mtp_patch import patch_mtp_layer_get_embeddings, patch_postprocess as with_mtp_loss

logger = logging.getLogger(__name__)


def build(model):
    with_mtp_loss(model)
    return patch_mtp_layer_get_embeddings(model), OmegaConf.create({}), torch.ones(1)
