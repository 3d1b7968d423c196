import logging

import torch
from omegaconf import OmegaConf
from verl.models.mcore.mtp_patch import patch_mtp_layer_get_embeddings, patch_postprocess as with_mtp_loss

logger = logging.getLogger(__name__)


def build(model):
    with_mtp_loss(model)
    return patch_mtp_layer_get_embeddings(model), OmegaConf.create({}), torch.ones(1)
