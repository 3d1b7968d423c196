import logging

import torch
from mcore_unpatch.compat.verl.mtp_patch import patch_mtp_layer_get_embeddings, patch_postprocess as with_mtp_loss
from omegaconf import OmegaConf

logger = logging.getLogger(__name__)


def build(model):
    with_mtp_loss(model)
    return patch_mtp_layer_get_embeddings(model), OmegaConf.create({}), torch.ones(1)
